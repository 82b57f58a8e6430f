"""Gathers the facts about the machine: each family in a separate child, before any probe runs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import msgspec

from gpudiag.facts import calls
from gpudiag.isolate import Ended, Job
from gpudiag.model import facts as hostfacts
from gpudiag.model.facts import Call, CallFacts, Facts, Unknown
from gpudiag.model.report import Cause
from gpudiag.run.answers import is_hang
from gpudiag.run.plan import driver_s
from gpudiag.run.servers import PLAIN, REPLACED
from gpudiag.run.session import TICK_S, Session

FACTS_DEADLINE_S = 15.0
DRIVER_DEADLINE_S = 40.0
"""For the facts that ask the driver: some take 30 s to start it, and one that takes longer counts as hung."""
ASK_THE_DRIVER = ("driver", "nvml", "cuda", "calls")


def gather_facts(session: Session, families: tuple[str, ...]) -> Facts:
    """Gather each of the families in a separate child; one that does not answer is ``Unknown``."""
    session.observer.phase("host facts")
    # The servers clear or replace these for children, and they are facts too.
    own = {name: os.environ.get(name) for name in (*REPLACED, "TMPDIR")}
    root = {} if session.options.machine.root is None else {"root": str(session.options.machine.root)}
    for family in families:
        target = "gpudiag.facts:gather_family"
        deadline_s = FACTS_DEADLINE_S
        if family in ASK_THE_DRIVER:
            deadline_s = min(DRIVER_DEADLINE_S, session.options.timeout_s or DRIVER_DEADLINE_S)
            deadline_s = deadline_s if family == "calls" else max(FACTS_DEADLINE_S, deadline_s)
        session.children.start(Job(family, target, {"family": family, **root}, deadline_s, PLAIN, env=own))
    gathered: dict[str, hostfacts.Family] = {}
    hung: list[Call] = []
    while len(gathered) < len(families):
        for ended in session.children.wait(TICK_S):
            if ended.key in session.standstills.looking:
                session.standstills.hear(ended)
                continue
            gathered[ended.key] = _family(ended)
            where = session.standstills.of(ended.key).where
            if is_hang(ended) and ended.key != "calls" and where is not None and where.call:
                hung.append(Call(where.call, None, waited_s=round(ended.duration_s, 1), file=where.file))
            session.standstills.forget(ended.key)
        session.standstills.look(set(ASK_THE_DRIVER) & set(families) - gathered.keys(), allow=False)
        session.observer.tick()
        if stopped := session.stopped():
            for family in families:
                session.children.kill(family, *stopped)
    if hung and isinstance(known := gathered.get("calls"), CallFacts) and not known.driver_hangs:
        gathered["calls"] = CallFacts((*known.calls, *{one.name: one for one in hung}.values()))
    facts = Facts(**gathered)  # type: ignore[arg-type]  # each family was decoded as the type of its field
    session.answers.driver_s = driver_s(facts)
    return facts


_OURS = (Cause.NOT_STARTED, Cause.EXCEPTION, Cause.BAD_RESULT, Cause.SERVER_LOST)
"""Causes that come from gpudiag itself: no driver and no library makes the gathering of facts end like this."""


def _family(ended: Ended) -> hostfacts.Family:
    if ended.key == "calls" and is_hang(ended):
        return calls.of_a_child(ended.stderr, waited_s=ended.duration_s)
    if ended.value is None:
        why = ended.detail if ended.cause is Cause.NOT_STARTED else f"gathering it failed: {ended.detail}"
        return Unknown(why, ended.cause in _OURS)
    try:
        family: hostfacts.Family = msgspec.json.decode(ended.value, type=_FAMILIES[ended.key])
    except msgspec.ValidationError as error:
        return Unknown(f"what was gathered is malformed: {error}", ours=True)
    return family


_FAMILIES: Mapping[str, Any] = {one.name: one.type for one in msgspec.structs.fields(Facts)}
