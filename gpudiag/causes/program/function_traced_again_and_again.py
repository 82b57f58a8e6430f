"""a tf.function was traced for nearly every call

Each new shape of an argument, and each new Python value, makes TensorFlow run the Python of a tf.function again and
build and place a new graph: a GPU waits meanwhile. This matters if there are nearly as many graphs as calls.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.fix import edit, edit_note
from gpudiag.model.program import ProgramTrace, place
from gpudiag.model.report import Severity

CAUSE = Cause(
    title="{function} was traced {times} times",
    severity=Severity.NOTE,
    fix=(
        edit("@tf.function(reduce_retracing=True)", "or an input_signature with shapes of None"),
        edit_note("give numbers as tensors: tf.constant(3), not 3"),
    ),
    url="https://www.tensorflow.org/guide/function#controlling_retracing",
    needs_gpu=False,
    symptom=True,
)
_MANY = 6
"""The number of graphs from which the function is reported; TensorFlow warns at 5 of the last calls."""


def find(program: ProgramTrace) -> Matches:
    for function in program.functions:
        if (
            function.traced >= _MANY and 0 < function.runs <= 4 * function.traced
        ):  # one that never ran is part of another
            yield Match(
                evidence=(f"{place(function.line)}: {function.traced} graphs for {function.runs} runs",),
                figures={"function": function.name, "times": function.traced},
            )
            return
