"""a call of NCCL to the operating system failed

TensorFlow reports "NCCL: unhandled system error" for every failed call to the operating system: shared memory, locked
memory, sockets, InfiniBand. Shared and locked memory are large enough here. With NCCL_DEBUG=WARN NCCL names the call.
"""

from __future__ import annotations

from gpudiag.cause import Cause, EveryLog, LogAlone, Match, Matches, Rows
from gpudiag.causes.shared.limits import in_words, limits_in_force, raised
from gpudiag.causes.shared.multi_gpu import (
    NCCL,
    SHARED_MEMORY,
    SeveralGpus,
    first,
    interface_not_here,
    is_named,
    warned,
    where_nccl_fails,
)
from gpudiag.fix import check, export
from gpudiag.knowledge.messages.collectives import NCCL_SYSTEM_ERROR
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.facts import Facts, Unknown
from gpudiag.model.report import Severity

CAUSE = Cause(
    title="a call of NCCL to the operating system failed: {which}",
    severity=Severity.WARNING,
    fix=(
        check("NCCL_DEBUG=WARN python program.py 2>&1 | tee app.log; gpudiag check --log app.log"),
        export("NCCL_IB_DISABLE", "1", "if the program then works, InfiniBand is the fault"),
        export("NCCL_SOCKET_IFNAME", "eth0", "if the interface is the fault; name the one that connects the machines"),
    ),
    url=NCCL,
    unless={
        "nccl_not_opened": "NCCL cannot fail before it is opened",
    },
)

_USUAL_FILES = 1024
"""The limit on open files that systems set."""


def find(facts: Facts, log: EveryLog, alone: LogAlone | None, several: SeveralGpus | None, rows: Rows) -> Matches:
    failed = first(log, NCCL_SYSTEM_ERROR)
    if warned(log, *SHARED_MEMORY) or (alone is not None and is_named(alone)):
        return
    little = several is not None and (several.small_shm is not None or several.small_memlock is not None)
    if failed and not little and not interface_not_here(facts):
        named = warned(log, "call to", "failed", "error")
        nodes = facts.device_nodes
        network = () if isinstance(nodes, Unknown) else nodes.network
        files = next((limit for limit in limits_in_force(facts) if limit.name == "Max open files"), None)
        few = files if files is not None and files.value < _USUAL_FILES and not named else None
        yield Match(
            stage=where_nccl_fails(rows),
            evidence=(
                f"log: {failed}",
                *([f"log: {named}"] if named else []),
                *([in_words(few)] if few else []),
                *([f"network interfaces: {' '.join(network)}"] if network else []),
            ),
            confidence=Confidence.LIKELY if few else Confidence.POSSIBLE,
            figures={
                "which": f"it may have only {few.value} files and connections open (ulimit -n)"
                if few
                else "NCCL's own line names it"
                if named
                else "the log does not say which"
            },
            fix=(*raised(few, facts), CAUSE.fix[0]) if few else (),
        )
