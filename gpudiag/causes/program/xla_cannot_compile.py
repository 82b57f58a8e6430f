"""XLA cannot compile a function, because of an operation that it does not support

jit_compile=True has a function compiled as a whole: one operation that XLA does not know, such as one on strings, and
TensorFlow raises InvalidArgumentError. Clusters that TensorFlow forms by itself leave such operations out.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.fix import Role, edit, edit_note
from gpudiag.model.program import ProgramTrace, place
from gpudiag.model.report import Severity

CAUSE = Cause(
    title="XLA cannot compile {function}: it has no {operations}",
    severity=Severity.WARNING,
    fix=(
        edit_note("take {operations} out of {function}"),
        edit("@tf.function", "without jit_compile=True; of Keras: compile(jit_compile=False)", role=Role.ALTERNATIVE),
    ),
    url="https://www.tensorflow.org/xla/known_issues",
    needs_gpu=False,
)


def find(program: ProgramTrace) -> Matches:
    for function in program.not_compiled[:1]:
        yield Match(
            evidence=(f"{place(function.line)}: for {function.device}: {', '.join(function.operations)}",),
            figures={"function": function.function, "operations": ", ".join(function.operations)},
        )
