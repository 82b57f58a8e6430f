"""CUDA_VISIBLE_DEVICES counts the fastest GPU first, and it is unknown which GPUs its numbers mean

With unequal GPUs an index names another GPU for CUDA than for nvidia-smi. gpudiag asks CUDA which it shows; here CUDA
shows fewer than the list names.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.visibility import MASK
from gpudiag.fix import export
from gpudiag.model.facts import CudaFacts, Facts
from gpudiag.model.visibility import index_is_ambiguous, mask_in_force

CAUSE = Cause(
    title="CUDA_VISIBLE_DEVICES={value!r} counts the fastest GPU first, and CUDA shows {shown} of {meant} GPUs, so "
    "it is unknown which are meant: your programs may get other GPUs than those checked",
    fix=(export("CUDA_VISIBLE_DEVICES", "{uuids}", "GPU {indices} of nvidia-smi"),),
    url="https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-environment-variables",
    finding="host.environment.index_not_known",
    row_only=True,
)


def find(facts: Facts, cuda: CudaFacts) -> Matches:
    value, mask = facts.variables.get(MASK), mask_in_force(facts)
    if value is not None and facts.nvml_devices and cuda.uuids and index_is_ambiguous(facts):
        yield Match(
            evidence=(f"{MASK}={value!r}", f"CUDA shows {', '.join(cuda.uuids)}"),
            figures={
                "value": value,
                "shown": len(cuda.uuids),
                "meant": len(mask.devices),
                "uuids": ",".join(mask.uuids),
                "indices": ", ".join(str(device.index) for device in mask.devices),
            },
        )
