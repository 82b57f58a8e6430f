"""TF_FORCE_GPU_ALLOW_GROWTH has no effect: TensorFlow reads only true and false, in lower case

TensorFlow compares the value letter by letter. True, 1, yes and the empty value are ignored with one line of its log,
and all memory of each GPU is taken as without the variable. The documentation of other projects often says True.
For the values of other variables see `value_not_read`.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches, Program, Variables
from gpudiag.fix import export
from gpudiag.knowledge.log_lines import text
from gpudiag.knowledge.messages.settings import GROWTH_NOT_PARSED
from gpudiag.knowledge.variables import ACCEPTED, FORCE_GROWTH
from gpudiag.model.report import Severity

CAUSE = Cause(
    title="TF_FORCE_GPU_ALLOW_GROWTH={value!r} has no effect: TensorFlow reads only true and false, in lower case",
    severity=Severity.WARNING,
    fix=(export("TF_FORCE_GPU_ALLOW_GROWTH", "{meant}"),),
    url="https://www.tensorflow.org/guide/gpu#limiting_gpu_memory_growth",
    finding="host.environment.growth_value",
)


def find(variables: Variables, program: Program) -> Matches:
    said = program.first(GROWTH_NOT_PARSED)
    shown = () if said is None else (text(said.line),)
    accepted = ACCEPTED[FORCE_GROWTH]
    value = variables.get(FORCE_GROWTH, "true")
    if not accepted.reads(value):
        meant = accepted.meant_by(value) or accepted.usual
        yield Match(
            evidence=(f"{FORCE_GROWTH}={value!r}", *shown),
            figures={"value": value, "meant": meant},
            tried=CAUSE.fix[0],
        )
    elif said is not None:
        yield Match(
            evidence=(f"{FORCE_GROWTH}={said['value']!r} in the program", *shown),
            figures={"value": said["value"], "meant": accepted.meant_by(said["value"]) or accepted.usual},
        )
