"""The family ``cuda``: which GPUs an index means; the CUDA driver is asked if NVML does not show it. Can hang.

No other family initialises the driver, because that takes seconds with many GPUs.
"""

from __future__ import annotations

import os

from gpudiag.hardware import cuda, nvml
from gpudiag.model.facts import CudaFacts
from gpudiag.model.visibility import has_indices, indices_are_ambiguous


def gather() -> CudaFacts:
    """Return the GPUs that the driver shows under this process's ``CUDA_VISIBLE_DEVICES``, if its indices are
    ambiguous."""
    mask = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    if not has_indices(mask):
        return CudaFacts()
    gpus = nvml.gather().devices
    if not indices_are_ambiguous(os.environ, gpus):
        return CudaFacts()
    by_bytes = {uuid.partition("-")[2]: uuid for gpu in gpus for uuid in (gpu.uuid, *gpu.mig_uuids)}
    return CudaFacts(mask, tuple(by_bytes.get(shown.uuid, f"GPU-{shown.uuid}") for shown in cuda.devices()))
