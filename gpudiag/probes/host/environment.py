"""The environment variables that reach TensorFlow and CUDA have names and values that take effect.

What it does
    Reads the variables of TensorFlow, the CUDA driver and the container runtime, and compares their names and values
    with those that have an effect.
Why it matters
    A misspelt name or value is not an error anywhere: TensorFlow or the driver ignores it, mostly silently.
What to do
    Correct or unset the variable in its source: shell profile, `.env` file, container image, job script or CI file.
"""

from __future__ import annotations

from gpudiag.model.facts import (
    Facts,
    Unknown,
)
from gpudiag.probe import Needs, Probe

PROBE = Probe(needs=Needs(tensorflow=False), families=("environment",), quick=True)


def figure(facts: Facts) -> str:
    if isinstance(facts.environment, Unknown):
        return "not known"
    count = len(facts.environment.variables)
    return f"{count} variable{'' if count == 1 else 's'} set"
