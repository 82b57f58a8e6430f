"""TF_GPU_ALLOCATOR has no effect: no allocator has the name that it gives

TensorFlow compares the value letter by letter with cuda_malloc_async, cuda_malloc and memory_guard, and uses its own
allocator for any other value, without a message.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches, Variables
from gpudiag.fix import export, unset
from gpudiag.knowledge.variables import ACCEPTED, ALLOCATOR
from gpudiag.model.report import Severity

CAUSE = Cause(
    title="TF_GPU_ALLOCATOR={value!r} has no effect: no allocator has that name",
    severity=Severity.WARNING,
    fix=(export("TF_GPU_ALLOCATOR", "cuda_malloc_async"),),
    url="https://www.tensorflow.org/guide/gpu_performance_analysis",
    finding="host.environment.allocator_value",
)


def find(variables: Variables) -> Matches:
    accepted, value = ACCEPTED[ALLOCATOR], variables.get(ALLOCATOR, "")
    if not accepted.reads(value):
        near = accepted.meant_by(value)
        fix = export(ALLOCATOR, near) if near else unset(ALLOCATOR)
        yield Match(
            evidence=(f"{ALLOCATOR}={value!r}", f"known: {', '.join(accepted.words)}"),
            figures={"value": value},
            fix=(fix,),
            tried=fix,
        )
