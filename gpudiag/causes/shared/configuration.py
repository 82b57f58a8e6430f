"""Shared by causes: settings of a program, and variables, that have not the effect that was meant."""

from __future__ import annotations

import re

from gpudiag.cause import Evidence
from gpudiag.knowledge.messages.misleading import NO_CUDA_DRIVERS
from gpudiag.knowledge.messages.way import CUINIT_CALL_FAILED, GPU_NOT_COUNTED, GPU_TYPE_DISABLED, LIBRARIES_MISSING

SETTER = re.compile(
    r"(?<!context\(\))\.(?:set_(?:visible_devices|memory_growth|\w+_parallelism_threads)|"
    r"set_(?:logical|virtual)_device_configuration)\("
)


def gpus_listed(evidence: Evidence) -> int:
    return 0 if evidence.trace is None else evidence.trace.listed


def listed_here(evidence: Evidence) -> tuple[str, ...]:
    """Say where the program must have run elsewhere than this check."""
    if evidence.trace is None:
        return ()
    if not evidence.trace.listed:
        return ("here TensorFlow lists no GPU either",)
    return (f"here TensorFlow lists {evidence.trace.listed}: the program ran with other variables, or elsewhere",)


WITHOUT_GPU = (NO_CUDA_DRIVERS, CUINIT_CALL_FAILED, LIBRARIES_MISSING, GPU_NOT_COUNTED, GPU_TYPE_DISABLED)
