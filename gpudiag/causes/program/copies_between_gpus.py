"""many tensors were copied from one GPU to another

An operation whose inputs are on two GPUs waits until one of them was copied. TensorFlow does that silently: each tensor
crosses the bus, or the link between the cards, and both GPUs wait for it.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.traced import GUIDE
from gpudiag.fix import edit, edit_note
from gpudiag.model.program import ProgramTrace, place
from gpudiag.model.report import Severity
from gpudiag.text import size

CAUSE = Cause(
    title="{count} tensors, {size} in all, were copied from one GPU to another",
    severity=Severity.NOTE,
    fix=(
        edit_note("make what belongs together in one tf.device scope, unless a split of the model over GPUs is meant"),
        edit("tf.distribute.MirroredStrategy()", "copies of the variables on each GPU, and sums of gradients by NCCL"),
    ),
    url=f"{GUIDE}#using_multiple_gpus",
    needs_gpu=False,
    symptom=True,
)
_MANY = 100
_MUCH = 64 << 20


def find(program: ProgramTrace) -> Matches:
    with_strategy = {strategy.process for strategy in program.replicas}  # these have to exchange gradients
    moved = [
        copies
        for copies in program.copies
        if copies.direction == "between GPUs" and copies.process not in with_strategy
    ]
    count, total = sum(copies.count for copies in moved), sum(copies.bytes for copies in moved)
    if count >= _MANY or total >= _MUCH:
        largest = sorted(moved, key=lambda copies: -copies.count)[:3]
        yield Match(
            evidence=tuple(
                f"{place(copies.line)}: {copies.count} copies{f' by {copies.function}' if copies.function else ''}, "
                f"{size(copies.bytes)}"
                for copies in largest
            ),
            figures={"count": count, "size": size(total)},
        )
