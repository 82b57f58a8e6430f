"""NVML fails when it is asked for the memory of a GPU

nvidia-smi shows ERR! or N/A in place of the memory. The driver knows the GPU by name and cannot read from it, as if it
has fallen off the bus or waits for a reset. TensorFlow may compute on it for a while. gpudiag cannot see what
TensorFlow takes of its memory, and skips the probes that measure that.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.devices import ChosenGpus
from gpudiag.causes.shared.gpu_state import GpusInScope, KernelLog, addresses, indices, named
from gpudiag.fix import kernel_log, note, reset_gpu

CAUSE = Cause(
    title="NVML fails when it is asked for the memory of {gpu}: {error}",
    unfit=True,
    fix=(
        kernel_log("shows which fault it is"),
        note("there is no other GPU to choose here"),
        reset_gpu("{index}", "if no program uses it; or reboot"),
    ),
    url="https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceEnumvs.html",
)


def find(gpus: ChosenGpus, states: GpusInScope, kernel: KernelLog) -> Matches:
    failing = tuple(device for device in states if device.memory_error)
    if not failing:
        return
    chosen = [gpu for gpu in gpus.gpus if gpu.pci_bus_id in addresses(failing)]
    other = gpus.without(chosen)
    yield Match(
        evidence=(
            *(f"NVML: memory of GPU {device.index}: {device.memory_error}" for device in failing),
            *kernel.last("Xid", "fallen off the bus"),
        ),
        figures={"gpu": named(failing), "error": failing[0].memory_error, "index": indices(failing)},
        fix=(CAUSE.fix[0], other, CAUSE.fix[2]),
        tried=other,
        gpus=addresses(failing),
    )
