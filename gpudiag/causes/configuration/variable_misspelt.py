"""nothing reads the variable {name}; {known} is meant, probably

TensorFlow, the CUDA driver and NVIDIA's libraries ask for the variables that they know, and nobody looks at the rest:
a misspelt name is not an error anywhere.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Evidence, Match, Matches
from gpudiag.model import Severity
from gpudiag.variables import WITHHELD

CAUSE = Cause(
    severity=Severity.WARNING,
    fix=("{cure}", "unset {name}"),
    url="https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-environment-variables",
    needs_gpu=False,
    shown={"cure": "export CUDA_VISIBLE_DEVICES=0"},
    views=("host.environment.misspelt",),
)


def find(evidence: Evidence) -> Matches:
    for found in evidence.found("host.environment", "misspelt"):
        name, value = found.figures["name"], str(found.figures["value"])
        said = f"{name} is set" if value == WITHHELD else f"{name}={value!r}"
        yield Match(evidence=(said,), figures=found.figures)
