"""a GPU has a power limit far below the one that it was sold with, and therefore runs at a low clock

An administrator, or a service that saves energy, has set a limit of power far below the card's own. It is kept until
the driver is loaded again. Every program runs, and nothing says why it is slow.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.gpu_state import GpusInScope
from gpudiag.fix import configure, nvidia_smi
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.report import Severity

CAUSE = Cause(
    title="{gpu} is limited to {limit} of {sold} W, and therefore runs at {clock} of {most} MHz",
    severity=Severity.WARNING,
    fix=(
        nvidia_smi("run it again while a program computes", "-q -d PERFORMANCE,POWER -i {index}"),
        configure("sudo nvidia-smi -i {index} -pl {sold}", "sets the card's original limit in watts"),
    ),
    url="https://docs.nvidia.com/deploy/nvidia-smi/index.html",
)
_PART = 0.5
"""The fraction of power and of clock below which a limit is reported: nobody chooses less for a card that computes."""


def find(gpus: GpusInScope) -> Matches:
    for device in gpus:
        state = device.state
        limit, sold = state.power_limit_watts, state.power_default_watts
        clock, most = state.clock_mhz, state.clock_max_mhz
        if not limit or not sold or not clock or not most or "power_cap" not in (state.slowed_by or ()):
            continue
        if state.is_working and limit < sold * _PART and clock < most * _PART:
            yield Match(
                evidence=(f"NVML: GPU {device.index}: {', '.join(state.slowed_by or ())}",),
                confidence=Confidence.LIKELY,
                figures={
                    "gpu": f"GPU {device.index}",
                    "index": device.index,
                    "limit": limit,
                    "sold": sold,
                    "clock": clock,
                    "most": most,
                },
            )
