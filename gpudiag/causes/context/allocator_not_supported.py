"""TF_GPU_ALLOCATOR=cuda_malloc_async aborts the process: this GPU, driver or system does not support memory pools

The allocator uses the memory pools of CUDA 11.2 and later. If the GPU, the driver, a hypervisor (vGPU) or the operating
system (WSL, containers with an old driver) does not support them, TensorFlow does not fall back: it writes a fatal line
and aborts when it makes its devices.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches, Unprovoked
from gpudiag.fix import edit_note, unset
from gpudiag.knowledge.messages.settings import NO_MEMORY_POOLS
from gpudiag.knowledge.variables import ALLOCATOR
from gpudiag.model.facts import Facts, Unknown

CAUSE = Cause(
    fix=(
        unset("TF_GPU_ALLOCATOR"),
        edit_note("if the program sets os.environ['TF_GPU_ALLOCATOR'], remove that line"),
    ),
    url="https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__MALLOC__ASYNC.html",
)


def find(facts: Facts, log: Unprovoked) -> Matches:
    said = log.said(NO_MEMORY_POOLS, most=1)
    if not said:
        return
    here = facts.variables.get(ALLOCATOR)
    driver = facts.driver
    version = "" if isinstance(driver, Unknown) or not driver.cuda_version else f"CUDA up to {driver.cuda_version}"
    known = [f"{ALLOCATOR}={here!r}"] if here else [f"{ALLOCATOR} is not set here: the program sets it"]
    if version:
        known.append(f"driver: {version}; the allocator needs 11.2")
    yield Match(evidence=(*said, *known), tried=CAUSE.fix[0] if here else None)
