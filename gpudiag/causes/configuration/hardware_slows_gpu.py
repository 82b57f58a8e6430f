"""a GPU is slowed down by its own hardware

A GPU that is too hot, or whose power supply asks it to use less (power brake), halves its clocks, or worse. Every
program runs, and nothing says why it is slow. A GPU that lowers its clocks while it is idle, or to stay within its
power limit, is healthy and not meant here.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.gpu_state import GpusInScope, indices, named
from gpudiag.fix import note, nvidia_smi
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.report import Severity

CAUSE = Cause(
    title="{gpu} is slowed down by its own hardware: {why}",
    severity=Severity.WARNING,
    fix=(
        nvidia_smi("run it again while a program computes", "-q -d PERFORMANCE,TEMPERATURE,POWER -i {index}"),
        note("check fans, dust and the air flow through the machine"),
        note("check the power supplies and cables; one may have failed"),
    ),
    url="https://docs.nvidia.com/deploy/nvidia-smi/index.html",
)
_REASONS = {
    "hot": ("it is too hot", CAUSE.fix[1]),
    "power_brake": ("its power supply asks for less", CAUSE.fix[2]),
}


def find(gpus: GpusInScope) -> Matches:
    # A notebook brakes its GPU whenever it runs on its battery.
    slowed = tuple(
        device
        for device in gpus.whose_state(lambda gpu: any(reason in (gpu.slowed_by or ()) for reason in _REASONS))
        if "Laptop" not in device.name and "Max-Q" not in device.name
    )
    if not slowed:
        return
    found = [
        reason for reason in _REASONS if any(reason in (nvml_device.state.slowed_by or ()) for nvml_device in slowed)
    ]
    yield Match(
        evidence=tuple(
            f"NVML: GPU {nvml_device.index}: {', '.join(nvml_device.state.slowed_by or ())}; "
            f"{nvml_device.state.clock_mhz} of {nvml_device.state.clock_max_mhz} MHz"
            for nvml_device in slowed
        ),
        confidence=Confidence.LIKELY,
        figures={
            "gpu": named(slowed),
            "why": " and ".join(_REASONS[reason][0] for reason in found),
            "index": indices(slowed),
        },
        fix=(CAUSE.fix[0], *(_REASONS[reason][1] for reason in found)),
    )
