"""many small tensors were copied one by one

A copy of a single number takes as long as one of some kilobytes, and Python waits for each value that it reads: until
then it starts nothing on the GPU. Typical are a loss that is read in each step for a sum or a print, and data that a
loop hands over piece by piece.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.fix import edit_note
from gpudiag.model.program import SMALL_BYTES, ProgramTrace, place
from gpudiag.model.report import Severity

CAUSE = Cause(
    title="{count} tensors of {size} bytes on average were copied {direction} one by one",
    severity=Severity.NOTE,
    fix=(
        edit_note("{where}: keep the tensors, and read them once after the loop"),
        edit_note("{where}: hand the data over once before the loop, or by tf.data"),
    ),
    url="https://www.tensorflow.org/guide/gpu_performance_analysis",
    needs_gpu=False,
    symptom=True,
)
_MANY = 1000
_INSTEAD = {"to host": CAUSE.fix[0], "to device": CAUSE.fix[1]}


def find(program: ProgramTrace) -> Matches:
    small = [
        copies_made
        for copies_made in program.copies
        if copies_made.direct
        and not copies_made.function
        and copies_made.direction in _INSTEAD
        and copies_made.count >= _MANY
        and copies_made.bytes <= SMALL_BYTES * copies_made.count
    ]
    if small:
        worst = max(small, key=lambda copy: copy.count)
        yield Match(
            evidence=tuple(
                f"{place(copies_made.line)}: {copies_made.count} copies {copies_made.direction}"
                for copies_made in small[:3]
            ),
            figures={
                "count": worst.count,
                "size": worst.bytes // worst.count,
                "direction": worst.direction,
                "where": place(worst.line),
            },
            fix=(_INSTEAD[worst.direction],),
        )
