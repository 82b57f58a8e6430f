"""Shared by causes: settings of a program, and variables, that do not have the intended effect."""

from __future__ import annotations

import re

from gpudiag.knowledge.messages.misleading import NO_CUDA_DRIVERS
from gpudiag.knowledge.messages.way import CUINIT_CALL_FAILED, GPU_NOT_COUNTED, GPU_TYPE_DISABLED, LIBRARIES_MISSING
from gpudiag.probes.discovery import trace

SETTER = re.compile(
    r"(?<!context\(\))\.(?:set_(?:visible_devices|memory_growth|\w+_parallelism_threads)|"
    r"set_(?:logical|virtual)_device_configuration)\("
)


def listed_here(seen: trace.Reading | None) -> tuple[str, ...]:
    """Return a line with TensorFlow's listing here, to compare with the place where the program ran."""
    if seen is None:
        return ()
    if not seen.listed:
        return ("here TensorFlow lists no GPU either",)
    return (f"here TensorFlow lists {seen.listed}: the program ran with other variables, or elsewhere",)


WITHOUT_GPU = (NO_CUDA_DRIVERS, CUINIT_CALL_FAILED, LIBRARIES_MISSING, GPU_NOT_COUNTED, GPU_TYPE_DISABLED)
