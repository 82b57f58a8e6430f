"""NCCL may lock too little memory to register its buffers with InfiniBand

InfiniBand reads and writes memory that is locked, and the limit on locked memory (ulimit -l) holds for it. If the
device is there and the limit is low, as in a container by default, or in a service that systemd started, NCCL fails
with "unhandled system error". NCCL_IB_DISABLE=1 makes it use sockets: slower, and the proof.
"""

from __future__ import annotations

from gpudiag.cause import Cause, EveryLog, Match, Matches, Rows
from gpudiag.causes.shared.multi_gpu import NCCL, UNLOCKED, SeveralGpus, first, warned, where_nccl_fails
from gpudiag.fix import export
from gpudiag.knowledge.messages.collectives import NCCL_SYSTEM_ERROR
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.report import Severity

CAUSE = Cause(
    title="NCCL may lock {size} KiB of memory, too little to register its buffers with InfiniBand ({device})",
    severity=Severity.WARNING,
    fix=(
        *UNLOCKED,
        export("NCCL_IB_DISABLE", "1", "confirms the cause; keep it if you do not want InfiniBand"),
    ),
    url=NCCL,
    views=("host.collectives.low_memlock",),
)


def find(log: EveryLog, several: SeveralGpus, rows: Rows) -> Matches:
    size, said = several.small_memlock, warned(log, "ibv_", "memlock", "cannot allocate memory")
    failed = said or first(log, NCCL_SYSTEM_ERROR)
    if size is not None and failed:
        device = several.container.infiniband[0]
        yield Match(
            stage=where_nccl_fails(rows),
            evidence=(f"log: {failed}", f"{device} is here, and a process may lock {size} KiB of memory"),
            confidence=Confidence.PROVED if said else Confidence.LIKELY,
            figures={"size": size, "device": device},
            fix=(*several.unlocked, CAUSE.fix[-1]),
        )
