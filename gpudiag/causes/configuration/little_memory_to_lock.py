"""InfiniBand is here, but a process may lock only little memory

InfiniBand reads and writes memory that is locked, and NCCL registers its buffers with it. It matters only if NCCL
fails, with "unhandled system error".
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.multi_gpu import UNLOCKED, SeveralGpus
from gpudiag.model.report import Severity

CAUSE = Cause(
    title="{device} is here, but a process may lock only {size_kib} KiB of memory",
    severity=Severity.NOTE,
    fix=UNLOCKED,
    url="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
    finding="host.collectives.low_memlock",
    row_only=True,
)


def find(several: SeveralGpus) -> Matches:
    if (size := several.small_memlock) is not None:
        device = several.container.infiniband[0]
        yield Match(
            evidence=(f"{device}; ulimit -l: {size} KiB",),
            figures={"device": device, "size_kib": size},
            fix=several.unlocked,
        )
