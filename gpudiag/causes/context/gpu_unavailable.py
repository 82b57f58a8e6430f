"""the driver refuses a context on a GPU as busy or unavailable, and its compute mode is not the reason

CUDA_ERROR_DEVICE_UNAVAILABLE comes from the compute mode most often. In mode DEFAULT it comes from a GPU that failed
and waits for a reset, from a GPU in MIG mode that is used as a whole, from an MPS daemon that is in trouble, from a
GPU that a hypervisor or a container shares badly, and from a mode that was changed meanwhile.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.devices import ChosenGpus, SaidToBeBusy, computing
from gpudiag.causes.shared.gpu_state import KernelLog
from gpudiag.fix import Role, kernel_log, note, nvidia_smi, reset_gpu
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.report import Gpu

CAUSE = Cause(
    title="the driver refuses a context on {who} as busy or unavailable, and its compute mode is not the reason{why}",
    fix=(
        nvidia_smi("shows the processes on the GPU, and its compute mode", "-q -d COMPUTE,PIDS"),
        kernel_log(),
        note("there is no other GPU to choose here"),
        reset_gpu("0", "or reboot: if its hardware or firmware has failed", role=Role.ALTERNATIVE),
    ),
    url="https://docs.nvidia.com/deploy/xid-errors/index.html",
    unless={
        "vgpu_without_licence": "a vGPU without a licence refuses contexts",
    },
)


def _named(gpus: list[Gpu]) -> str:
    return " and ".join(f"GPU {gpu.index}" for gpu in gpus)


def find(gpus: ChosenGpus, busy: SaidToBeBusy, kernel: KernelLog) -> Matches:
    devices = gpus.by_nvml
    if any(device.compute_mode not in ("default", None) for _, device in devices):
        return
    failing = gpus.failing
    reset = gpus.reset([gpu.index for gpu in failing])
    other = gpus.without(failing) if failing else None
    processes = sum(len(computing(device)) for _, device in devices)
    looked_at = ("compute mode: default", f"processes: {processes}") if devices else ()
    reason = kernel.reason([gpu.pci_bus_id for gpu in failing or gpus.gpus])
    certain = reason is not None and reason.confidence is Confidence.LIKELY
    yield Match(
        evidence=(busy.text, *looked_at, *(reason.lines if reason else ())),
        confidence=Confidence.LIKELY if certain else Confidence.POSSIBLE,
        figures={"who": _named(failing) or "a GPU", "why": f": {reason.meaning}" if certain and reason else ""},
        fix=(*reason.fix, other) if certain and reason else (*CAUSE.fix[:2], other, reset),
        tried=other,
    )
