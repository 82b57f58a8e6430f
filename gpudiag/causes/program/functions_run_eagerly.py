"""every tf.function runs eagerly, since {where}

run_functions_eagerly is for finding errors: each operation of a function is started from Python, one by one, and a GPU
waits for it. Nothing is optimized.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.model.program import ProgramTrace, place
from gpudiag.model.report import Severity

CAUSE = Cause(
    severity=Severity.NOTE,
    fix=("tf.config.run_functions_eagerly(False)",),
    url="https://www.tensorflow.org/api_docs/python/tf/config/run_functions_eagerly",
    needs_gpu=False,
    symptom=True,
)


def find(program: ProgramTrace) -> Matches:
    for one in program.settings:
        if one.what == "run_functions_eagerly" and one.value == "True" and one.fate == "took effect":
            yield Match(evidence=(f"{place(one.line)}: {one.what} {one.value}",), figures={"where": place(one.line)})
            return
