"""The account of each GPU of the machine in one process: used, or what kept it from being used, by which line: pure."""

from __future__ import annotations

from collections.abc import Iterator

from gpudiag.model.program import GpuUse, ProgramTrace, Setting, place
from gpudiag.model.program import SettingFate as Fate
from gpudiag.tracing.effects import MASK
from gpudiag.tracing.observed import Observed

_HOLDS = (Fate.TOOK_EFFECT, Fate.OTHER_EFFECT, Fate.NOT_CHECKED)
_CHOOSES = ("visible_devices", "visible_device_list", "device_count")


def uses(trace: ProgramTrace, seen: Observed) -> Iterator[GpuUse]:
    """Yield what a process did with each GPU of the machine; nothing if TensorFlow listed no devices in it."""
    process = next((process for process in trace.processes if process.pid == seen.pid), None)
    if process is None or not process.tensorflow or (seen.physical is None and not seen.devices):
        return
    ran = trace.operations(process)
    is_known = not any(known.unknown_runs for known in trace.functions if known.process == process.pid)
    ran_or_seen = "ran" if is_known else "was seen"
    shown = None if seen.cards is None else {card.pci for card in seen.cards}
    for card in sorted(seen.machine.values(), key=lambda card: card.index):
        devices = [device for device in process.devices if device.pci == card.pci]
        names = tuple(device.name for device in devices)
        operations = sum(ran.get(name, 0) for name in names)
        peak = max((device.peak_bytes for device in devices), default=0)
        if names:
            unused = "" if operations or peak else f"no operation {ran_or_seen} on {', '.join(names)}"
            yield GpuUse(card.index, process.pid, names, operations, peak, unused)
            continue
        setting = _hiding(trace, process.pid, is_shown=shown is not None and card.pci in shown)
        if setting is not None:
            why = f"hidden by {_shown(setting)}"
            yield GpuUse(card.index, process.pid, unused=why, line=setting.line, is_hidden=True)
        elif process.not_made:
            yield GpuUse(card.index, process.pid, unused=process.not_made)
        elif not shown or card.pci not in shown:
            yield GpuUse(card.index, process.pid, unused="the CUDA driver does not show it")
        elif seen.layout or (seen.made and not seen.gpus):
            yield GpuUse(card.index, process.pid, unused="TensorFlow made no device on it")
        elif not seen.made:
            yield GpuUse(card.index, process.pid, unused="TensorFlow made no devices")
        else:
            yield GpuUse(card.index, process.pid, unused="which GPUs the devices of TensorFlow are on is not known")


def _hiding(trace: ProgramTrace, pid: int, *, is_shown: bool) -> Setting | None:
    """Return the setting that keeps a card from a process: of TensorFlow if the driver shows it, or else of CUDA."""
    hiding = [
        setting
        for setting in trace.settings
        if (setting.process == pid or not setting.line) and setting.fate in _HOLDS and _can_hide(setting, is_shown)
    ]
    own = [setting for setting in hiding if setting.process == pid]  # workers are started with a mask each
    return next(reversed(own or hiding), None)


def _can_hide(setting: Setting, is_shown: bool) -> bool:
    chooses = setting.what in _CHOOSES or setting.value.startswith(_CHOOSES)
    return (chooses if is_shown else setting.what == MASK) and "CPU" not in setting.value.partition("=")[0]


def _shown(setting: Setting) -> str:
    where = f" at {place(setting.line)}" if setting.line else " in the environment"
    return f"{setting.what}{'=' if setting.what == MASK else ' '}{setting.value}{where}"
