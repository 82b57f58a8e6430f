"""{function} was traced {times} times

Each new shape of an argument, and each new Python value, makes TensorFlow run the Python of a tf.function again and
build and place a new graph: a GPU waits meanwhile. It is worth a look if there are nearly as many graphs as calls.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.fix import Kind, edit, note
from gpudiag.model.program import ProgramTrace, place
from gpudiag.model.report import Severity

CAUSE = Cause(
    severity=Severity.NOTE,
    fix=(
        edit("@tf.function(reduce_retracing=True)", "or an input_signature with shapes of None"),
        note("give numbers as tensors: tf.constant(3), not 3", kind=Kind.EDIT_PROGRAM),
    ),
    url="https://www.tensorflow.org/guide/function#controlling_retracing",
    needs_gpu=False,
    symptom=True,
)
_MANY = 6
"""TensorFlow warns at 5 of the last calls."""


def find(program: ProgramTrace) -> Matches:
    for one in program.functions:
        if one.traced >= _MANY and 0 < one.runs <= 4 * one.traced:  # one that never ran is part of another
            yield Match(
                evidence=(f"{place(one.line)}: {one.traced} graphs for {one.runs} runs",),
                figures={"function": one.name, "times": one.traced},
            )
            return
