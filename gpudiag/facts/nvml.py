"""The family ``nvml``: GPUs as NVML reports them. Can hang on a wedged driver."""

from __future__ import annotations

from gpudiag import nvml
from gpudiag.hostfacts import NvmlFacts


def gather() -> NvmlFacts:
    """Return what NVML answers; its error message if it does not."""
    return nvml.gather()
