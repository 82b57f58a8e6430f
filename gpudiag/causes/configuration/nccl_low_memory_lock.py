"""NCCL may lock {size} KiB of memory, too little to register its buffers with InfiniBand ({device})

InfiniBand reads and writes memory that is locked, and the limit on locked memory (ulimit -l) holds for it. Where the
device is there and the limit is low, as in a container by default, or in a service that systemd started, NCCL fails
with "unhandled system error". NCCL_IB_DISABLE=1 makes it use sockets: slower, and the proof.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Evidence, Match, Matches
from gpudiag.causes.shared.multi_gpu import NCCL, finding_here, first, warned
from gpudiag.knowledge.messages.collectives import NCCL_SYSTEM_ERROR
from gpudiag.model import Severity, Sure

CAUSE = Cause(
    severity=Severity.WARNING,
    fix=(
        "docker run --ulimit memlock=-1 --shm-size=1g ...   # without a container: ulimit -l unlimited",
        "export NCCL_IB_DISABLE=1   # to confirm, or for good where InfiniBand is not to be used",
    ),
    url=NCCL,
    views=("host.collectives.low_memlock",),
)


def find(evidence: Evidence) -> Matches:
    here, said = finding_here(evidence, "low_memlock"), warned(evidence, "ibv_", "memlock", "cannot allocate memory")
    failed = said or first(evidence, NCCL_SYSTEM_ERROR)
    if here and failed:
        yield Match(
            evidence=(f"log: {failed}", here.message),
            sure=Sure.PROVED if said else Sure.LIKELY,
            figures={"size": here.figures["size_kib"], "device": here.figures["device"]},
        )
