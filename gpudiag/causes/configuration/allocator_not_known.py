"""TF_GPU_ALLOCATOR={value!r} has no effect: no allocator has that name

TensorFlow compares the value letter by letter with cuda_malloc_async, cuda_malloc and memory_guard, and uses its own
allocator for any other, without a line.
"""

from __future__ import annotations

import difflib

from gpudiag.cause import Cause, Evidence, Match, Matches
from gpudiag.causes.shared.configuration import ALLOCATOR
from gpudiag.model import Severity

CAUSE = Cause(
    severity=Severity.WARNING,
    fix=("{correct}",),
    url="https://www.tensorflow.org/guide/gpu_performance_analysis",
    shown={"correct": "export TF_GPU_ALLOCATOR=cuda_malloc_async"},
)
_ALLOCATORS = ("cuda_malloc_async", "cuda_malloc", "memory_guard")


def find(evidence: Evidence) -> Matches:
    if not evidence.found("host.environment", "allocator_value"):
        return
    value = evidence.facts.variables.get(ALLOCATOR, "")
    near = difflib.get_close_matches(value.strip().lower().replace("-", "_"), _ALLOCATORS, n=1)
    yield Match(
        evidence=(f"{ALLOCATOR}={value!r}", f"known: {', '.join(_ALLOCATORS)}"),
        figures={
            "value": value,
            "correct": f"export {ALLOCATOR}={near[0]}" if near else f"unset {ALLOCATOR}",
        },
        change={ALLOCATOR: near[0] if near else None},
    )
