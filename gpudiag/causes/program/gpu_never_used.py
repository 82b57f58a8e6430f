"""{gpus} computed nothing: {used} of {made} GPUs worked

TensorFlow makes a device of each GPU that it sees, and takes memory of it as soon as it does. A program uses one GPU
unless it distributes its work; the others are kept from everybody else.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.traced import GUIDE
from gpudiag.fix import edit, export
from gpudiag.model.program import Device, Process, ProgramTrace, place
from gpudiag.model.report import Severity
from gpudiag.text import size

CAUSE = Cause(
    severity=Severity.NOTE,
    fix=(
        export("CUDA_VISIBLE_DEVICES", "{first}", "if one GPU is meant: the others are left to others"),
        edit("tf.distribute.MirroredStrategy()", "if all are to train"),
    ),
    url=f"{GUIDE}#using_multiple_gpus",
    needs_gpu=False,
    symptom=True,
    unless=(
        "strategy_ran_nothing",
        "gpu_made_and_not_used",
        "gpu_asked_for_not_used",
        "logical_devices_moved_gpu",
        "replicas_without_own_gpu",
    ),
)


def find(program: ProgramTrace) -> Matches:
    for process in program.processes:
        ran = program.operations(process)
        idle = [device for device in process.gpus if not ran.get(device.name) and not device.peak_bytes]
        used = [device for device in process.gpus if ran.get(device.name)]
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


def _taken(program: ProgramTrace, process: Process, device: Device) -> str:
    """Return what an idle GPU costs: the memory that the process holds of its card."""
    card = next((card for card in program.booked if str(card.index) == device.gpu), None)
    held = dict(card.processes).get(process.pid, 0) if card is not None else 0
    if held:
        return f"{device.name}: no operation ran on it; NVML: the program holds {size(held)} of card {device.gpu}"
    return f"{device.name}: no operation ran on it; TensorFlow may take up to {size(device.limit_bytes)} of it"
