"""a limit of this process's control group or user was reached, and the kernel refused more or killed a process

A container, a job, a systemd unit and a shell may have limits of processes and threads, memory, open files and
addresses. TensorFlow starts a thread for each processor and more, and a few GiB of libraries are loaded. What breaks
when a limit is reached does not name it: "Thread tf_numa_-1_Eigen creation via pthread_create() failed" and SIGABRT,
or SIGKILL in the middle of an import, without a word. The kernel counts, for each control group, how often it refused.
A limit that is low and was not reached does no harm.
"""

from __future__ import annotations

from gpudiag.cause import Cause, EveryLog, Match, Matches, Rows
from gpudiag.causes.shared.limits import KINDS, amount, in_words, raised
from gpudiag.causes.shared.steps import FirstFailed
from gpudiag.fix import check
from gpudiag.knowledge.log_lines import Log
from gpudiag.model.diagnosis import Confidence, Stage
from gpudiag.model.facts import ContainerFacts, Facts, Limit
from gpudiag.model.report import Broken

CAUSE = Cause(
    title="the limit on {what} ({limit}) was reached{killed}",
    fix=(check("ulimit -a; cat /sys/fs/cgroup/pids.max /sys/fs/cgroup/memory.max", "shows the limits in force"),),
    url="https://docs.kernel.org/admin-guide/cgroup-v2.html",
    needs_gpu=False,
)


def find(facts: Facts, inside: ContainerFacts, log: EveryLog, rows: Rows, failed: FirstFailed | None) -> Matches:
    outcomes = [row.outcome for row in rows]
    broken = [outcome for outcome in outcomes if isinstance(outcome, Broken) and not outcome.by_the_run]
    details = Log(outcome.detail for outcome in broken)
    killed = [line for line in details.lines if "SIGKILL" in line]
    found = []
    for limit in inside.limits:
        kind = KINDS.get(limit.name)
        if kind is None:
            continue
        said = log.said(*kind.breaks, most=1) or details.said(*kind.breaks, most=1)
        too_little = limit.value < kind.least
        seen = said or (tuple(killed[:1]) if kind.kills else details.lines[:1] if too_little else ())
        counts = limit.during_run or (limit.reached if said and not broken else 0)
        if seen and (counts or (not kind.counts and _can_refuse(limit, seen))):
            found.append((not kind.counts, not too_little, limit, seen))
    # What the kernel counted is certain; of the others, each may have refused, the first that which nothing fits into.
    found.sort(key=lambda match: match[:2])
    for guessed, _, limit, seen in found[:1]:
        yield _match(facts, limit, seen, failed.stage if failed is not None else None, guessed=guessed)


_STARTED_AT_ONCE = 10_000
"""More threads than a program starts at once: a limit above what runs by more has not refused them."""


def _can_refuse(limit: Limit, seen: tuple[str, ...]) -> bool:
    """Return whether a limit that the kernel does not count can have refused: EPERM is said by a filter, not by one."""
    if limit.name != "Max processes":
        return True
    is_near = limit.used is None or limit.value <= limit.used + _STARTED_AT_ONCE
    return is_near and not any("Operation not permitted" in line for line in seen)


def _match(facts: Facts, limit: Limit, seen: tuple[str, ...], stage: Stage | None, *, guessed: bool) -> Match:
    kind = KINDS[limit.name]
    killed = kind.kills and any("SIGKILL" in line for line in seen)
    return Match(
        evidence=(*seen, in_words(limit)),
        confidence=Confidence.LIKELY if guessed else Confidence.PROVED,
        figures={
            "what": kind.words,
            "limit": amount(limit),
            "killed": ": the kernel killed a process" if killed else "",
        },
        fix=raised(limit, facts),
        about=(limit.name,),
        stage=stage,
    )
