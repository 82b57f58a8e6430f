"""TF_FORCE_GPU_ALLOW_GROWTH={value!r} has no effect: TensorFlow reads only true and false, in lower case

TensorFlow compares the value letter by letter. True, 1, yes and the empty value are ignored with one line of its log,
and all memory of each GPU is taken as without the variable. Documents of other projects say True.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Evidence, Match, Matches
from gpudiag.causes.shared.configuration import GROWTH
from gpudiag.knowledge.log import GROWTH_NOT_PARSED
from gpudiag.log import text
from gpudiag.model import Severity

CAUSE = Cause(
    severity=Severity.WARNING,
    fix=("export TF_FORCE_GPU_ALLOW_GROWTH={meant}",),
    url="https://www.tensorflow.org/guide/gpu#limiting_gpu_memory_growth",
)
_FALSE = ("0", "false", "no", "off")


def find(evidence: Evidence) -> Matches:
    found = evidence.found("host.environment", "growth_value")
    said = evidence.program.first(GROWTH_NOT_PARSED)
    if found:
        value = evidence.facts.variables.get(GROWTH, "")
    elif said:
        value = said["value"]
    else:
        return
    meant = "false" if value.strip().lower() in _FALSE else "true"
    yield Match(
        evidence=(f"{GROWTH}={value!r}{'' if found else ' in the program'}", *([text(said.line)] if said else [])),
        figures={"value": value, "meant": meant},
        change={GROWTH: meant} if found else None,
    )
