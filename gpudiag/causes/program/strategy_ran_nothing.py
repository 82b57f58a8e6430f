"""a strategy has several replicas, but ran nothing on them: the GPUs did not train

A strategy distributes what Strategy.run is given, and the models of Keras that are made and compiled in its scope. A
model, or a step, that is made outside of the scope runs on one GPU, without a warning. If it is compiled or trained in
the scope, variables of both meet, and training ends with an error that does not name the reason (2.21).
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.fix import edit_note
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.program import ProgramTrace, Replicas, place
from gpudiag.model.report import Severity

CAUSE = Cause(
    title="{strategy} {problem}",
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
_OF_STRATEGIES = ("tf.distribute.", "strategy.scope", "MirroredVariable", "colocate_vars_with")
"""Words of the errors with which training ends if variables of a scope meet others (2.21)."""
_OF_OPTIMIZERS = ("AssignSubVariableOp", "ResourceApply")


def find(program: ProgramTrace) -> Matches:
    for strategy in program.replicas:
        gpus = [device for device in strategy.devices if device.startswith("GPU")]
        if len(gpus) < 2 or _COORDINATES in strategy.strategy:
            continue
        made = f"{place(strategy.line)}: {strategy.strategy} on {', '.join(strategy.devices)}"
        outside = [line for line in strategy.outside if line != strategy.line]  # it makes one itself
        if outside and (error := _mixed(program, strategy)):
            lines = " and ".join(map(place, outside[:2]))
            yield Match(
                evidence=(made, f"{lines}: made variables outside of every scope", error),
                confidence=Confidence.LIKELY,
                figures={
                    "strategy": strategy.strategy,
                    "problem": "meets variables that were made outside of its scope",
                },
            )
            return
        if strategy.runs != 0 or not strategy.is_held or _another_ran(program, strategy):
            continue
        process = next((process for process in program.processes if process.pid == strategy.process), None)
        ran = program.operations(process) if process is not None else {}
        if not _trained(program, strategy.process):
            continue  # the program ended before it trained
        problem = f"has {len(strategy.devices)} replicas, but ran nothing on them"
        yield Match(
            evidence=(
                made,
                "neither the program nor Keras called its run",
                f"operations: {', '.join(f'{number:,} on {device}' for device, number in sorted(ran.items()))}",
            ),
            figures={
                "strategy": strategy.strategy,
                "problem": f"{problem}: {', '.join(_idlest(gpus, ran))} did not train",
            },
        )
        return


def _mixed(program: ProgramTrace, strategy: Replicas) -> str:
    """Return the error with which training ended because variables of the scope met others; "" if it did not."""
    error = next((line.strip() for line in reversed(program.raised) if line.strip()), "")
    is_bare = error == "AssertionError" and bool(strategy.variables)
    return error if is_bare or any(word in error for word in _OF_STRATEGIES) else ""


def _trained(program: ProgramTrace, pid: int) -> bool:
    """Return whether a process ran a function, or an operation with which optimizers change variables."""
    ran = any(function.runs for function in program.functions if function.process == pid)
    return ran or any(row.process == pid and row.op.startswith(_OF_OPTIMIZERS) for row in program.placed)


def _another_ran(program: ProgramTrace, strategy: Replicas) -> bool:
    return any(other.runs for other in program.replicas if other.process == strategy.process)


def _idlest(gpus: list[str], ran: dict[str, int]) -> list[str]:
    """Return the GPUs except the one that ran the most operations."""
    busiest = max(gpus, key=lambda gpu: ran.get(gpu, 0))
    return [gpu for gpu in gpus if gpu != busiest]
