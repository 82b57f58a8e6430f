"""NCCL has too little room in /dev/shm for its buffers

If GPUs have no direct way to each other, NCCL exchanges data through /dev/shm. Docker and Kubernetes give a
container 64 MiB of it; NVIDIA recommends 1 GiB and no limit on locked memory. NCCL then fails with "unhandled system
error", and says more only with NCCL_DEBUG=WARN. One GPU alone works.
"""

from __future__ import annotations

from gpudiag.cause import Cause, EveryLog, LogAlone, Match, Matches, Rows
from gpudiag.causes.shared.multi_gpu import (
    NCCL,
    SHARED_MEMORY,
    SeveralGpus,
    first,
    is_named,
    shm_text,
    warned,
    where_nccl_fails,
)
from gpudiag.fix import Kind, check, note, run_container
from gpudiag.knowledge.messages.collectives import NCCL_SYSTEM_ERROR
from gpudiag.knowledge.messages.nccl import SHM_NOT_PERMITTED
from gpudiag.knowledge.origin import Origin
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.report import Severity

CAUSE = Cause(
    title="NCCL has too little room in /dev/shm for its buffers: {room}",
    severity=Severity.WARNING,
    fix=(
        run_container("--shm-size=1g", "--ulimit memlock=-1", note="or --ipc=host"),
        note("in Kubernetes, mount an emptyDir with medium: Memory at /dev/shm", kind=Kind.START_CONTAINER),
        check("ls -l /dev/shm/nccl-*", "shows files left by killed programs: remove them when no program runs"),
        check("NCCL_DEBUG=WARN python program.py", "shows what failed, if it fails again"),
    ),
    url=NCCL,
    views=("host.collectives.small_shm",),
)


def find(log: EveryLog, alone: LogAlone | None, origin: Origin, several: SeveralGpus | None, rows: Rows) -> Matches:
    if log.first(SHM_NOT_PERMITTED):
        return
    said = warned(log, *SHARED_MEMORY)
    here = several.small_shm if several is not None else None
    failed = said or first(log, NCCL_SYSTEM_ERROR)
    if several is not None and here is not None and failed:
        yield Match(
            stage=where_nccl_fails(rows),
            evidence=(f"log: {failed}", shm_text(here, len(several.gpus))),
            confidence=Confidence.PROVED if said else Confidence.LIKELY,
            figures={"room": f"{here} MiB in this container"},
        )
    elif said:  # there is enough here, or one GPU: the log is of another machine, or others filled it
        yield Match(
            stage=where_nccl_fails(rows),
            evidence=(f"log: {said}",),
            confidence=Confidence.PROVED if "no space left on device" in said.lower() else Confidence.LIKELY,
            figures={"room": "none was left where the program ran"},
        )
    elif alone is not None and failed and origin.container and not (warned(log, "") or is_named(alone)):
        yield Match(
            stage=where_nccl_fails(rows),
            evidence=(f"log: {failed}",),
            confidence=Confidence.POSSIBLE,
            figures={"room": "64 MiB, if the container was started without more, and NCCL says nothing else"},
        )
