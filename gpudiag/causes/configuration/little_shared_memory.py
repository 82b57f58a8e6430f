"""this container has little shared memory (/dev/shm) for several GPUs

If GPUs have no direct connection, NCCL keeps its buffers in /dev/shm. Docker and Kubernetes give a container 64 MiB
of it; NVIDIA recommends 1 GiB. Many programs get by with less. It matters only if NCCL fails, with "unhandled system
error": then it is the first thing to change.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.multi_gpu import SeveralGpus, shm_text
from gpudiag.fix import run_container
from gpudiag.model.report import Severity

CAUSE = Cause(
    title="this container has {size_mib} MiB of /dev/shm for {gpus} GPUs",
    severity=Severity.NOTE,
    fix=(run_container("--shm-size=1g", "--ulimit memlock=-1", note="if NCCL fails; or use --ipc=host"),),
    url="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
    finding="host.collectives.small_shm",
    row_only=True,
)


def find(several: SeveralGpus) -> Matches:
    if (size := several.small_shm) is not None:
        gpus = len(several.gpus)
        yield Match(evidence=(shm_text(size, gpus),), figures={"size_mib": size, "gpus": gpus})
