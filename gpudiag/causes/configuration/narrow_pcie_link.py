"""a GPU has a narrower or slower PCIe link than it supports: every copy to it takes many times as long

A GPU that was put into a slot with one lane, on a riser cable for mining, or whose contacts are bad works without an
error and gets its data slowly; training that reads much is a fraction as fast. Idle GPUs lower the speed of their link,
so it counts only while the GPU is awake. Eight lanes, or four for a GPU in a separate box, are usual, and are not meant
here.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.gpu_state import GpusInScope, indices, named
from gpudiag.fix import Kind, check, note, nvidia_smi
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.facts import GpuState
from gpudiag.model.report import Severity

CAUSE = Cause(
    title="{gpu} is connected by {now} but supports {most}: every copy to it takes many times as long",
    severity=Severity.WARNING,
    fix=(
        nvidia_smi(
            options="--query-gpu=index,pcie.link.gen.current,pcie.link.width.current,pcie.link.width.max --format=csv"
        ),
        note(
            "switch off, and put GPU {index} into a slot with 16 lanes, without a riser; clean its contacts",
            kind=Kind.REPLACE_HARDWARE,
        ),
        check(
            "sudo lspci -vv | grep -i -e nvidia -e LnkSta:", "shows (downgraded) if a link is narrower than it could be"
        ),
    ),
    url="https://docs.nvidia.com/deploy/nvidia-smi/index.html",
)
_NARROW = 2
"""PCIe lanes at which a link is narrow; four are those of Thunderbolt, OCuLink and M.2, which users choose."""


def _is_narrow(state: GpuState) -> bool:
    width, most = state.pcie_width, state.pcie_width_max
    slowest = state.pcie_generation == 1 and (state.pcie_generation_max or 0) >= 3
    return state.is_working and bool((width and most and width <= _NARROW and most >= 8) or slowest)


def find(gpus: GpusInScope) -> Matches:
    # What a virtual machine is shown of a link is up to the hypervisor.
    narrow = gpus.whose_state(lambda gpu: _is_narrow(gpu) and gpu.virtualization in ("none", None))
    if narrow:
        first = narrow[0].state
        yield Match(
            evidence=tuple(
                f"NVML: GPU {device.index}, performance state P{device.state.performance_state}: "
                f"PCI Express {device.state.pcie_generation} x{device.state.pcie_width}, "
                f"at most {device.state.pcie_generation_max} x{device.state.pcie_width_max}"
                for device in narrow
            ),
            confidence=Confidence.LIKELY,
            figures={
                "gpu": named(narrow),
                "now": f"PCI Express {first.pcie_generation} x{first.pcie_width}",
                "most": f"{first.pcie_generation_max} x{first.pcie_width_max}",
                "index": indices(narrow),
            },
        )
