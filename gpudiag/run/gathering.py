"""Gathers the facts about the machine: each family in a separate child, before any probe runs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import msgspec

from gpudiag.facts import calls
from gpudiag.isolate import Job, JobResult
from gpudiag.model import facts as hostfacts
from gpudiag.model.facts import CallFacts, Facts, TimedCall, Unknown
from gpudiag.model.report import NoReading
from gpudiag.run.gpu_watch import is_hang
from gpudiag.run.plan import driver_s
from gpudiag.run.servers import PLAIN, REPLACED
from gpudiag.run.session import Session
from gpudiag.run.standstill import Standstill

FACTS_DEADLINE_S = 15.0
DRIVER_DEADLINE_S = 40.0
"""Deadline for facts that ask the driver: its start can take 30 s, and anything longer counts as hung."""
ASK_THE_DRIVER = ("driver", "nvml", "cuda", "calls")


def gather_facts(session: Session, families: tuple[str, ...]) -> Facts:
    """Gather each family of facts in a separate child; a family that does not answer is ``Unknown``."""
    session.observer.phase("host facts")
    facts = Facts(**_gathered(session, families))  # type: ignore[arg-type]  # decoded as the types of its fields
    session.gpu_watch.driver_s = driver_s(facts)
    return facts


def with_new_facts(session: Session, facts: Facts, families: tuple[str, ...]) -> Facts:
    """Return ``facts`` with these families as they are now; those that do not answer any more are kept."""
    new = _gathered(session, families)
    return msgspec.structs.replace(facts, **{name: it for name, it in new.items() if not isinstance(it, Unknown)})


def _gathered(session: Session, families: tuple[str, ...]) -> dict[str, hostfacts.FactFamily]:
    # The servers clear or replace these for children, and they are facts too.
    own = {name: os.environ.get(name) for name in (*REPLACED, "TMPDIR")}
    root = {} if session.options.machine.root is None else {"root": str(session.options.machine.root)}
    results: dict[str, JobResult] = {}
    not_examined = session.options.not_examined
    families = tuple(family for family in families if family != "tensorflow" or not not_examined)
    for family in families:
        target = "gpudiag.facts:gather_family"
        deadline_s = FACTS_DEADLINE_S
        if family in ASK_THE_DRIVER:
            deadline_s = min(DRIVER_DEADLINE_S, session.options.timeout_s or DRIVER_DEADLINE_S)
            deadline_s = deadline_s if family == "calls" else max(FACTS_DEADLINE_S, deadline_s)
        job = Job(family, target, {"family": family, **root}, deadline_s, PLAIN, env=own)
        session.jobs.start(job, lambda result: results.update({result.key: result}))
    asking = {family: Standstill(session.jobs, family, PLAIN, 0.0) for family in families if family in ASK_THE_DRIVER}
    while len(results) < len(families):
        session.jobs.poll()
        for family, standstill in asking.items():
            if family not in results:
                standstill.look()
        session.observer.tick()
        if stopped := session.stopped():
            for family in families:
                session.children.kill(family, *stopped)
    gathered = {family: _family(results[family]) for family in families}
    if not_examined:
        gathered["tensorflow"] = Unknown(not_examined)
    hung = tuple(_hung_call(results[family], standstill) for family, standstill in asking.items())
    if isinstance(known := gathered.get("calls"), CallFacts) and not known.driver_hangs:
        new = {call.name: call for call in hung if call is not None}
        gathered["calls"] = msgspec.structs.replace(known, calls=(*known.calls, *new.values()))
    return gathered


def _hung_call(result: JobResult, standstill: Standstill) -> TimedCall | None:
    """Return the call in which gathering a family hung; None if it did not hang, or if the family reports the hang
    itself."""
    where = standstill.where
    if not is_hang(result) or result.key == "calls" or where is None or not where.call:
        return None
    return TimedCall(where.call, None, waited_s=round(result.duration_s, 1), file=where.file)


_OURS = (
    NoReading.NOT_STARTED,
    NoReading.EXCEPTION,
    NoReading.BAD_RESULT,
    NoReading.SERVER_LOST,
)
"""Causes that come from gpudiag itself: no driver and no library makes the gathering of facts end like this."""


def _family(result: JobResult) -> hostfacts.FactFamily:
    if result.key == "calls" and is_hang(result):
        return calls.of_a_child(result.stderr, waited_s=result.duration_s)
    if result.value is None:
        why = result.detail if result.cause is NoReading.NOT_STARTED else f"gathering it failed: {result.detail}"
        return Unknown(why, result.cause in _OURS)
    try:
        family: hostfacts.FactFamily = msgspec.json.decode(result.value, type=_FAMILIES[result.key])
    except msgspec.ValidationError as error:
        return Unknown(f"what was gathered is malformed: {error}", ours=True)
    return family


_FAMILIES: Mapping[str, Any] = {field.name: field.type for field in msgspec.structs.fields(Facts)}
