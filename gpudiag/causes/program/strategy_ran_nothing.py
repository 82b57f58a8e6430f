"""a strategy has several replicas, but ran nothing on them: the GPUs did not train

A strategy distributes what Strategy.run is given, and the models of Keras that are made and compiled in its scope. A
model, or a step, that is made outside of the scope runs on one GPU, without a warning.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.fix import edit_note
from gpudiag.model.program import ProgramTrace, Replicas, place
from gpudiag.model.report import Severity

CAUSE = Cause(
    title="{strategy} has {count} replicas, but ran nothing on them: {missing} did not train",
    severity=Severity.WARNING,
    fix=(
        edit_note("make and compile the model, its optimizer and metrics below: with strategy.scope():"),
        edit_note("in a training loop of your own, run the step by strategy.run(step, args=(batch,))"),
    ),
    url="https://www.tensorflow.org/guide/distributed_training#use_tfdistributestrategy_with_keras_modelfit",
    needs_gpu=False,
    unless={
        "replicas_without_own_gpu": "the replicas have no GPU each",
    },
)
_COORDINATES = "ParameterServer"
"""Names of strategies that get their work from a coordinator."""


def find(program: ProgramTrace) -> Matches:
    for strategy in program.replicas:
        gpus = [device for device in strategy.devices if device.startswith("GPU")]
        if (
            strategy.runs != 0
            or not strategy.is_held
            or len(gpus) < 2
            or _COORDINATES in strategy.strategy
            or _another_ran(program, strategy)
        ):
            continue
        process = next((process for process in program.processes if process.pid == strategy.process), None)
        ran = program.operations(process) if process is not None else {}
        if not any(function.runs for function in program.functions if function.process == strategy.process):
            continue  # the program ended before it trained
        yield Match(
            evidence=(
                f"{place(strategy.line)}: {strategy.strategy} on {', '.join(strategy.devices)}",
                "neither the program nor Keras called its run",
                f"operations: {', '.join(f'{number:,} on {device}' for device, number in sorted(ran.items()))}",
            ),
            figures={
                "strategy": strategy.strategy,
                "count": len(strategy.devices),
                "missing": ", ".join(_idlest(gpus, ran)),
            },
        )
        return


def _another_ran(program: ProgramTrace, strategy: Replicas) -> bool:
    return any(other.runs for other in program.replicas if other.process == strategy.process)


def _idlest(gpus: list[str], ran: dict[str, int]) -> list[str]:
    """Return the GPUs except the one that ran the most operations."""
    busiest = max(gpus, key=lambda gpu: ran.get(gpu, 0))
    return [gpu for gpu in gpus if gpu != busiest]
