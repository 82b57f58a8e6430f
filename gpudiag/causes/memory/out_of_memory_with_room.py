"""the driver answers CUDA_ERROR_OUT_OF_MEMORY, although the memory of the GPUs is free

CUDA_ERROR_OUT_OF_MEMORY is also the driver's answer if it lacks memory or addresses of the host: a limit of the
container or of Slurm, `ulimit -v`, huge pages or locked memory. A GPU that failed gives it too; so does a client of
MPS beyond its limit, and a program that has ended since.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Listing, Match, Matches
from gpudiag.causes.shared.devices import ChosenGpus
from gpudiag.causes.shared.gpu_state import addresses
from gpudiag.causes.shared.limits import below, in_words
from gpudiag.causes.shared.memory import devices_in_scope, free_bytes, gib, holders, refused_with_room
from gpudiag.causes.shared.steps import cuinit_error
from gpudiag.fix import check, note, nvidia_smi
from gpudiag.model.diagnosis import Confidence, Stage
from gpudiag.model.facts import TriedFacts
from gpudiag.text import listed

CAUSE = Cause(
    title="CUDA_ERROR_OUT_OF_MEMORY{where}, although {free} of {total} are free",
    fix=(
        check("ulimit -v -l; free -m", "shows this shell's limits and the host's free memory"),
        check("sudo dmesg | grep -i -e nvrm -e xid -e oom"),
        nvidia_smi("shows who is on the GPU now; to end an MPS server: echo quit | nvidia-cuda-mps-control"),
        note("the GPU that fails is one of those of nvidia-smi -L; dmesg names it by its PCI bus id"),
    ),
    url="https://docs.nvidia.com/deploy/xid-errors/index.html",
    symptom=True,
)


_LIMITS = ("memory.max", "Max address space", "vm.overcommit_memory")


def find(gpus: ChosenGpus, listing: Listing, tried: TriedFacts | None) -> Matches:
    if refused := refused_with_room(gpus.facts, gpus.rows):
        devices = devices_in_scope(gpus.facts)
        daemon = tried.mps if tried is not None and tried.mps and tried.mps.why_not else None
        gpus_bytes = sum(device.memory_total_bytes for device in devices)
        yield Match(
            evidence=(
                *refused,
                *map(holders, devices),
                *map(in_words, below(gpus.facts, gpus_bytes, *_LIMITS)),
                *([f"MPS answers; whether it limits memory is not known: {daemon.why_not}"] if daemon else []),
            ),
            confidence=Confidence.POSSIBLE,
            figures={
                "where": f" on {listed([f'GPU {gpu.index}' for gpu in gpus.failing])}" if gpus.failing else "",
                "free": gib(min(map(free_bytes, devices))),
                "total": gib(min(device.memory_total_bytes for device in devices)),
            },
            fix=(CAUSE.fix[0], CAUSE.fix[1], CAUSE.fix[2], gpus.reset(gpu.index for gpu in gpus.failing)),
            gpus=addresses(gpus.failing),
            stage=Stage.DRIVER if "OUT_OF_MEMORY" in cuinit_error(listing) else None,
        )
