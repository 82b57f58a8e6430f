"""a GPU computed nothing while others worked

TensorFlow makes a device of each GPU that it sees, and a program uses one GPU unless it distributes its work. This
cause is reported if the program asked for the GPU, by a list of visible devices, a strategy or tf.device, or if the
process holds much of its memory, which no other program can use then.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.traced import GUIDE
from gpudiag.fix import edit, export
from gpudiag.model.program import MadeDevice, Process, ProgramTrace, place
from gpudiag.model.program import SettingFate as Fate
from gpudiag.model.report import Severity
from gpudiag.text import size

CAUSE = Cause(
    title="{gpus} computed nothing: {used} of {made} GPUs worked",
    severity=Severity.NOTE,
    fix=(
        export("CUDA_VISIBLE_DEVICES", "{first}", "if one GPU is meant: the others are left to others"),
        edit("tf.distribute.MirroredStrategy()", "if all are to train"),
    ),
    url=f"{GUIDE}#using_multiple_gpus",
    needs_gpu=False,
    symptom=True,
    unless={
        "strategy_ran_nothing": "the strategy that was to use the GPU ran nothing",
        "gpu_asked_for_not_used": "the operations that were for that GPU are named",
        "logical_devices_moved_gpu": "it says which device took the place of the GPU",
        "replicas_without_own_gpu": "the replicas have no GPU each",
    },
)
MASK = "CUDA_VISIBLE_DEVICES"
_MUCH = 1 << 30
"""The memory above which more is held than the driver and the libraries take for themselves."""


def find(program: ProgramTrace) -> Matches:
    for process in program.processes:
        ran = program.operations(process)
        idle = [device for device in process.gpus if not program.uses(process, device)]
        used = [device for device in process.gpus if ran.get(device.name)]
        asked = _asked(program, process)
        idle = [device for device in idle if device.name in asked or _held(program, process, device) >= _MUCH]
        if not idle or not used or process.lost or process.missing:
            continue
        yield Match(
            evidence=(
                *(_taken(program, process, device) for device in idle),
                *(
                    f"{place(strategy.line)}: {strategy.strategy} on {', '.join(strategy.devices)}"
                    for strategy in program.replicas
                    if strategy.process == process.pid
                ),
            ),
            figures={
                "gpus": ", ".join(device.name for device in idle),
                "used": len(used),
                "made": len(process.gpus),
                "first": used[0].gpu or 0,
            },
        )
        return


def _asked(program: ProgramTrace, process: Process) -> set[str]:
    """Return the devices that the program asked for: by name, or by a list of several GPUs that leaves out others."""
    several = [
        setting
        for setting in program.settings
        if setting.fate in (Fate.TOOK_EFFECT, Fate.NOT_CHECKED)
        and (setting.process == process.pid or not setting.line)
        and (setting.what == MASK or (setting.what == "visible_devices" and len(process.gpus) < len(program.booked)))
        and "," in setting.value
    ]
    return program.asked(process) | {device.name for device in process.gpus if several}


def _held(program: ProgramTrace, process: Process, device: MadeDevice) -> int:
    """Return the bytes of a card's memory that the process holds, by NVML."""
    card = next((card for card in program.booked if str(card.index) == device.gpu), None)
    return dict(card.processes).get(process.pid, 0) if card is not None else 0


def _taken(program: ProgramTrace, process: Process, device: MadeDevice) -> str:
    """Return the cost of an idle GPU: the memory that the process holds on its card."""
    held = _held(program, process, device)
    if held:
        return f"{device.name}: no operation ran on it; NVML: the program holds {size(held)} of card {device.gpu}"
    return f"{device.name}: no operation ran on it; TensorFlow may take up to {size(device.limit_bytes)} of it"
