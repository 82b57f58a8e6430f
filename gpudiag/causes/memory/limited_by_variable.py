"""TF_PER_DEVICE_MEMORY_LIMIT_MB limits the memory that TensorFlow may take of each GPU, but the program needs more

The variable refuses every allocation past the limit; "Created device ... with N MB memory" shows the larger number
without it. TensorFlow tries for ten seconds before it raises ResourceExhaustedError.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches, Program, Rows
from gpudiag.causes.shared.memory import checked
from gpudiag.fix import Kind, note, unset
from gpudiag.knowledge.messages.memory import LIMIT_REACHED
from gpudiag.model.facts import Facts

CAUSE = Cause(
    fix=(unset("TF_PER_DEVICE_MEMORY_LIMIT_MB"), note("or raise it", kind=Kind.SET_VARIABLE)),
    url="https://www.tensorflow.org/guide/gpu#limiting_gpu_memory_growth",
)
_LIMIT = "TF_PER_DEVICE_MEMORY_LIMIT_MB"


def find(facts: Facts, program: Program, rows: Rows) -> Matches:
    said = program.said(LIMIT_REACHED, most=1) or checked(rows, LIMIT_REACHED)
    if not said:
        return
    value = facts.variables.get(_LIMIT)
    known = f"{_LIMIT}={value}" if value else f"{_LIMIT} is not set here: the program sets it, or what starts it"
    yield Match(evidence=(*said, known), tried=CAUSE.fix[0] if value else None)
