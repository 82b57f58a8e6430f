"""a variable about threads stops TensorFlow from creating its GPU devices: it does not accept the value

TF_GPU_THREAD_MODE reads global, gpu_private and gpu_shared, in upper or lower case. TF_GPU_THREAD_COUNT is read only
with the last two, and must be a whole number.
"""

from __future__ import annotations

import re

from gpudiag.cause import Cause, Match, Matches, Variables
from gpudiag.fix import unset
from gpudiag.knowledge.variables import ACCEPTED, THREAD_MODE
from gpudiag.model.facts import Facts

CAUSE = Cause(
    title="{name}={value!r} stops TensorFlow from creating its GPU devices: it accepts only {read}",
    fix=(unset("{name}"),),
    url="https://www.tensorflow.org/guide/gpu",
    finding="host.environment.threads_refused",
    row_only=True,
)
_COUNT = "TF_GPU_THREAD_COUNT"


def find(facts: Facts, variables: Variables) -> Matches:
    # Measured, 2.21: the number is read only if each GPU has its own threads.
    mode, count = variables.get(THREAD_MODE, "global"), variables.get(_COUNT, "2")
    if not facts.nvml_devices:
        return
    if not ACCEPTED[THREAD_MODE].reads(mode):
        yield _refused(THREAD_MODE, mode, " or ".join(ACCEPTED[THREAD_MODE].words))
    elif mode.lower() != "global" and not re.fullmatch(r"\s*[+-]?\d+\s*", count):
        yield _refused(_COUNT, count, "a whole number")


def _refused(name: str, value: str, read: str) -> Match:
    return Match(evidence=(f"{name}={value!r}",), figures={"name": name, "value": value, "read": read})
