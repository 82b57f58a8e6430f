"""a GPU that is at work is held far below its clock: for heat, by its power supply, or by a low limit of power

A GPU that is too hot, or whose power supply asks it to use less (power brake), halves its clocks, or worse: its
hardware does it, and before that the driver, by a limit of temperature that a firmware may have set far too low. A
limit of power far below the card's own, which an administrator or a service that saves energy has set, does so too.
Every program runs, and nothing says why it is slow. A GPU that lowers its clocks while it is idle, or a little to stay
within its power limit, is healthy and not meant here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.gpu_state import GpusInScope, addresses, indices, named
from gpudiag.fix import Action, configure, note, nvidia_smi
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.facts import GpuState, NvmlDevice
from gpudiag.model.report import Severity

CAUSE = Cause(
    title="{gpu} runs at {clock} of {most} MHz: {why}",
    severity=Severity.WARNING,
    fix=(
        nvidia_smi("run it again while a program computes", "-q -d PERFORMANCE,TEMPERATURE,POWER -i {index}"),
        note("check fans, dust and the air flow through the machine"),
        note(
            "if it is not hot, the firmware of the notebook or server sets the limit: choose its mode of high "
            "performance, and update BIOS or BMC"
        ),
        note("check the power supplies and cables; one may have failed"),
        configure("sudo nvidia-smi -i {index} -pl {sold}", "sets the card's original limit in watts"),
    ),
    url="https://docs.nvidia.com/deploy/nvidia-smi/index.html",
)
_PART = 0.5
"""The fraction of the clock below which it is reported that the driver lowers it, and of the power that nobody chooses
for a card that computes: a GPU at its limit of heat or power keeps more, but for cards of 70 W at their own limit."""


class _Reason(NamedTuple):
    bit: str
    """NVML's reason, as the facts name it."""
    words: str
    """A format string over ``limit`` and ``sold``, in watts."""
    fix: tuple[Action, ...]
    of_hardware: bool = False
    """True if the hardware slows the GPU, which it does to half or less; else the clock shows whether it matters."""


_REASONS = (
    _Reason("hot", "it is too hot", CAUSE.fix[1:2], of_hardware=True),
    _Reason("power_brake", "its power supply asks for less", CAUSE.fix[3:4], of_hardware=True),
    _Reason("hardware", "its hardware asks for it, for heat or power", (CAUSE.fix[1], CAUSE.fix[3])),
    _Reason("warm", "the driver lowers its clock to stay below a limit of temperature", CAUSE.fix[1:3]),
    _Reason("power_cap", "it is limited to {limit} of {sold} W", CAUSE.fix[4:]),
)


def find(gpus: GpusInScope) -> Matches:
    slowed = {device: reasons for device in gpus if (reasons := (*_reasons(device),))}
    for reasons in dict.fromkeys(slowed.values()):
        devices = tuple(device for device, own in slowed.items() if own == reasons)
        state = devices[0].state
        figures = {"index": indices(devices), "limit": state.power_limit_watts, "sold": state.power_default_watts}
        yield Match(
            evidence=(*map(_seen, devices), *map(_seen, _twins(gpus, devices))),
            confidence=Confidence.LIKELY,
            figures={
                "gpu": named(devices),
                "clock": state.clock_mhz or 0,
                "most": state.clock_max_mhz or 0,
                "why": " and ".join(reason.words.format_map(figures) for reason in reasons),
                **{name: value for name, value in figures.items() if value is not None},
            },
            fix=(CAUSE.fix[0], *dict.fromkeys(action for reason in reasons for action in reason.fix)),
            gpus=addresses(devices),
        )


def _reasons(device: NvmlDevice) -> Iterator[_Reason]:
    """Yield why a GPU is held far below its clock; NVML's general reason only if no exact one is given."""
    state, by_name = device.state, device.state.slowed_by or ()
    is_low = state.is_working and 0 < (state.clock_mhz or 0) < (state.clock_max_mhz or 0) * _PART
    # A notebook brakes its GPU whenever it runs on its battery.
    notebook = "Laptop" in device.name or "Max-Q" in device.name
    of_hardware = [reason for reason in _REASONS if reason.of_hardware and reason.bit in by_name]
    for reason in _REASONS:
        if reason.bit not in by_name or (reason.bit == "power_cap" and not _is_limited(state)):
            continue
        if notebook and reason.bit in ("power_brake", "hardware"):
            continue
        if (is_low and not (reason.bit == "hardware" and of_hardware)) or (reason.of_hardware and not notebook):
            yield reason


def _is_limited(state: GpuState) -> bool:
    limit, sold = state.power_limit_watts, state.power_default_watts
    return limit is not None and sold is not None and limit <= sold * _PART


def _twins(gpus: GpusInScope, slowed: tuple[NvmlDevice, ...]) -> Iterator[NvmlDevice]:
    """Yield a GPU of the same model that is at work and not slowed, if there is one."""
    names = {device.name for device in slowed}
    others = (gpu for gpu in gpus if gpu not in slowed and gpu.name in names and gpu.state.is_working)
    yield from [gpu for gpu in others if not any(_reasons(gpu))][:1]


def _seen(device: NvmlDevice) -> str:
    state = device.state
    reasons = ", ".join(state.slowed_by or ()) or "nothing slows it"
    heat = f"; {state.temperature} degrees C" if state.temperature is not None else ""
    most = f", its limit is {state.temperature_max}" if heat and state.temperature_max is not None else ""
    return f"NVML: GPU {device.index}: {reasons}; {state.clock_mhz} of {state.clock_max_mhz} MHz{heat}{most}"
