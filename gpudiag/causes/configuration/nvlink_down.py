"""a GPU has fewer NVLinks up than other GPUs of its kind: collectives are slow, or hang

The cards are of one kind, so they should have the same number of links. A link is down after an error, a card or bridge
that sits badly, or a fabric that was not set up again. NCCL then goes over PCI Express, or stops at the first
all-reduce.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.gpu_state import GpusInScope, KernelLog, indices, named
from gpudiag.fix import Kind, note, nvidia_smi, run
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.facts import NvmlDevice
from gpudiag.model.report import Severity

CAUSE = Cause(
    title="{gpu} has only {active} of {links} NVLinks up; other GPUs of its kind have more: collectives are slow, or"
    " hang",
    severity=Severity.WARNING,
    fix=(
        nvidia_smi("shows which links are down; nvidia-smi nvlink -e shows their errors", "nvlink -s -i {index}"),
        run(
            "sudo nvidia-smi --gpu-reset",
            "resets all GPUs together, if no program uses them; or reboot",
            kind=Kind.RESET_GPU,
        ),
        note("have the bridge or card reseated or replaced if the links stay down", kind=Kind.REPLACE_HARDWARE),
    ),
    url="https://docs.nvidia.com/deploy/nvidia-smi/index.html#nvlink",
)


def find(gpus: GpusInScope, kernel: KernelLog) -> Matches:
    devices = [device for device in gpus if device.state.nvlinks]
    most = {device.name: max(map(_active, devices_of(devices, device.name))) for device in devices}
    # None at all is a card without a bridge, beside two that have one.
    down = tuple(device for device in devices if 0 < _active(device) < most[device.name])
    if down:
        yield Match(
            evidence=(
                *(f"NVML: GPU {nvml_device.index}: {_active(nvml_device)} NVLinks active" for nvml_device in devices),
                *kernel.last("nvlink", "Xid"),
            ),
            confidence=Confidence.LIKELY,
            figures={
                "gpu": named(down),
                "active": _active(down[0]),
                "links": most[down[0].name],
                "index": indices(down),
            },
        )


def devices_of(devices: list[NvmlDevice], name: str) -> list[NvmlDevice]:
    return [device for device in devices if device.name == name]


def _active(device: NvmlDevice) -> int:
    return sum(device.state.nvlinks or ())
