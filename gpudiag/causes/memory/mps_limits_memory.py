"""out of GPU memory: MPS limits this program (CUDA_MPS_PINNED_DEVICE_MEM_LIMIT), but it needs more

A server of MPS gives each of its clients at most the memory that this variable names. The driver then answers "out of
memory", and NVML shows a GPU that is nearly empty. The context of CUDA and its libraries count, too: some hundred MiB.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.devices import ChosenGpus
from gpudiag.causes.shared.memory import devices_in_scope, holders, refused_with_room
from gpudiag.fix import unset
from gpudiag.model.diagnosis import Confidence

CAUSE = Cause(
    title="out of GPU memory: MPS limits this program to CUDA_MPS_PINNED_DEVICE_MEM_LIMIT={limit}, but it needs more",
    fix=(unset("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", note="or raise it"),),
    url="https://docs.nvidia.com/deploy/mps/index.html",
)
_LIMIT = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"


def find(gpus: ChosenGpus) -> Matches:
    limit = gpus.facts.variables.get(_LIMIT)
    refused = refused_with_room(gpus.facts, gpus.rows)
    if limit and refused:
        yield Match(
            evidence=(*refused, f"{_LIMIT}={limit}", *map(holders, devices_in_scope(gpus.facts))),
            confidence=Confidence.LIKELY,
            figures={"limit": limit},
            tried=CAUSE.fix[0],
        )
