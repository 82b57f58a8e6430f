"""The family ``nvml``: GPUs as NVML reports them, and who holds their memory. Can hang on a wedged driver."""

from __future__ import annotations

from pathlib import Path

import msgspec

from gpudiag.facts.holders import with_holders
from gpudiag.hardware import nvml
from gpudiag.model.facts import NvmlFacts


def gather(root: Path = Path("/")) -> NvmlFacts:
    """Return NVML's answer, or its error message, with details of the processes from ``root/proc``."""
    facts = nvml.gather()
    return msgspec.structs.replace(facts, devices=tuple(with_holders(device, root) for device in facts.devices))
