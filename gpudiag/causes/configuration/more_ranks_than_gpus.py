"""a launcher started more processes on this machine than it has GPUs: they share GPUs, and run out of memory

TensorFlow takes nearly all memory of each GPU that it sees when it first computes. If more processes are started on a
machine than it has GPUs for them, the second on the same GPU fails, out of memory, or hangs in the first collective:
NCCL does not take two ranks on one GPU.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.launchers import Launcher
from gpudiag.fix import export, note, start
from gpudiag.knowledge.variables import FORCE_GROWTH
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.facts import Facts
from gpudiag.model.report import Severity
from gpudiag.model.visibility import gpus_in_scope

CAUSE = Cause(
    title="{launcher} started {processes} processes on this machine, but there {are} for them: they share GPUs, and "
    "run out of memory",
    severity=Severity.WARNING,
    fix=(
        start("mpirun -np 2 ..."),
        export(
            "TF_FORCE_GPU_ALLOW_GROWTH",
            "true",
            "if they are meant to share a GPU; NCCL still refuses two ranks on one GPU",
        ),
    ),
    url="https://horovod.readthedocs.io/en/stable/gpus.html",
)
_SHARED_ON_PURPOSE = ("CUDA_MPS_PIPE_DIRECTORY", "TF_PER_DEVICE_MEMORY_LIMIT_MB")


def find(launcher: Launcher, facts: Facts) -> Matches:
    variables = facts.variables
    devices = facts.nvml_devices
    gpus = sum(len(device.mig_uuids) or 1 for device in devices)
    if launcher.name == "Slurm":  # the GPUs of the node's others may be seen, and each task may see its own alone
        given = variables.get("SLURM_GPUS_ON_NODE", "")
        gpus = int(given) if given.isdecimal() and not variables.get("SLURM_GPUS_PER_TASK") else 0
    if not gpus_in_scope(facts) or not 0 < gpus < launcher.processes:  # on the CPU alone they may be many
        return
    if variables.get(FORCE_GROWTH) == "true" or any(name in variables for name in _SHARED_ON_PURPOSE):
        return
    how = {
        "Slurm": start(f"srun --ntasks-per-node={gpus} --gpus-per-task=1 ..."),
        "Horovod": start(f"horovodrun -np {gpus} ...", "start as many processes on each machine as it has GPUs"),
        "torchrun": note(f"torchrun --nproc-per-node={gpus} ..."),
    }
    yield Match(
        evidence=(f"{launcher.variable}={variables[launcher.variable]}", f"GPUs on this machine for them: {gpus}"),
        confidence=Confidence.LIKELY,
        figures={
            "launcher": launcher.name,
            "processes": launcher.processes,
            "are": "is 1 GPU" if gpus == 1 else f"are {gpus} GPUs",
        },
        fix=(
            how.get(
                launcher.name, note(f"mpirun -np {gpus} ...  # start as many processes on each machine as it has GPUs")
            ),
            CAUSE.fix[1],
        ),
    )
