"""TF_GPU_ALLOCATOR=memory_guard aborts the process: TensorFlow rejects the unaligned memory of its own debugging
allocator

The allocator puts 16 bytes before each tensor, to notice who writes there. Most operations check that a tensor begins
at a multiple of 32 or 64 bytes, as the processor's vector instructions ask for, and abort, on every GPU (2.21).
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches, Unprovoked
from gpudiag.fix import note, unset
from gpudiag.knowledge.messages.settings import GUARD_IN_USE, MISALIGNED
from gpudiag.knowledge.variables import ALLOCATOR
from gpudiag.model.facts import Facts

CAUSE = Cause(
    fix=(unset("TF_GPU_ALLOCATOR"), note("use compute-sanitizer python program.py to look for writes out of bounds")),
    url="https://docs.nvidia.com/compute-sanitizer/ComputeSanitizer/index.html",
)


def find(facts: Facts, log: Unprovoked) -> Matches:
    said = log.said(MISALIGNED, most=1)
    here = facts.variables.get(ALLOCATOR)
    guarded = here == "memory_guard" or log.first(GUARD_IN_USE) is not None
    if said and guarded:
        known = f"{ALLOCATOR}={here!r}" if here else f"{ALLOCATOR} is not set here: the program sets it"
        yield Match(evidence=(*said, known), tried=CAUSE.fix[0] if here else None)
