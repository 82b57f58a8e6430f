"""One run: gathers facts, makes a plan, runs a probe for every row, and returns the report."""

from __future__ import annotations

import time
from contextlib import ExitStack
from datetime import datetime, timezone
from pathlib import Path

import msgspec

import gpudiag
from gpudiag import catalogue
from gpudiag.facts import FAMILIES
from gpudiag.facts.limits import limits, limits_after
from gpudiag.isolate import Bounds, ServerSpec, Supervision, supervise
from gpudiag.model.diagnosis import Diagnosis
from gpudiag.model.facts import CallFacts, Facts, Limit, TimedCall, Unknown
from gpudiag.model.health import GpuHealth
from gpudiag.model.report import SCHEMA_VERSION, Broken, Judged, Level, Limits, NoReading, Report, Row, conclude
from gpudiag.model.visibility import gpus_in_scope
from gpudiag.probe import LoadReading
from gpudiag.run import attempts, judgement
from gpudiag.run.accounts import account
from gpudiag.run.bisected import with_bisection
from gpudiag.run.explained import with_reasons
from gpudiag.run.gaps import with_gaps
from gpudiag.run.gathering import gather_facts, with_new_facts
from gpudiag.run.gpu_watch import longest
from gpudiag.run.options import Observer, Options
from gpudiag.run.plan import QUICK_FROM_S, chosen_level, of_level, planned
from gpudiag.run.scheduler import Scheduler
from gpudiag.run.servers import PLAIN, TENSORFLOW, begun, environment_for, server_of
from gpudiag.run.session import Session
from gpudiag.run.signals import Signals
from gpudiag.run.views import with_one_voice

LAST_S = 3.0
"""How long a run stopped by a signal or its deadline waits for the diagnosis, which usually takes less."""


def run(options: Options, observer: Observer, signals: Signals) -> Report:
    """Run the probes of ``options`` and return the report, also if a signal or the deadline ends the run early."""
    tensorflow = any(server_of(entry, options.isolation) == TENSORFLOW for entry in options.entries)
    with begun(options.machine, options.timeout_s, tensorflow=tensorflow) as children:
        return run_on(children, options, observer, signals)


def run_on(children: Supervision, options: Options, observer: Observer, signals: Signals) -> Report:
    """Do as :func:`run`, with the children that :func:`gpudiag.run.servers.begun` has returned."""
    started_at = datetime.now(timezone.utc)
    began = time.monotonic()
    limits_before = limits(Path("/"))
    entries = options.entries
    required = catalogue.get("host.gpus")
    if options.limits.require_gpus and required not in entries:
        entries = (required, *entries)
    until = None if options.deadline_s is None else began + options.deadline_s
    with signals.waking(children.wakeup_fd):
        session = Session(options, children, observer, signals, until)
        facts = gather_facts(session, FAMILIES)
        gpus = gpus_in_scope(facts)
        observer.machine(facts, gpus)
        level = chosen_level(options.level, gpus, facts)
        if level.name == "quick":
            entries = of_level(entries, level.name)
        scheduler = Scheduler(session, facts, gpus)
        with ExitStack() as stack:
            watch = None
            if any(entry.probe.stress for entry in entries) and gpus:
                from gpudiag.run.health import watching  # not imported by other runs, like all else of a load

                watch = stack.enter_context(watching(environment_for(options.machine), session.began))
            rows = scheduler.rows(planned(entries, gpus))
            health = () if watch is None else watch.gpus()
        if _failed_on_a_gpu(rows) and not session.stopped():
            facts = with_new_facts(session, facts, ("kernel",))
        rows = _compared(rows, facts, options.limits, health)
        if calls := session.gpu_watch.calls:
            facts = _with_calls(facts, calls)
            rows = tuple(_of_the_host_again(row, facts, options.limits) for row in rows)
        if any(isinstance(row.outcome, Broken) and not row.outcome.by_the_run for row in rows):
            facts = _with_limits(facts, limits_before)
        slowest = longest(session.gpu_watch.slow_calls)
        if options.level is None and slowest is not None and (slowest.seconds or 0.0) >= QUICK_FROM_S:
            level = Level("quick", f"{slowest.name} takes {slowest.seconds:.0f} s")
        subject = judgement.JudgedSubject(facts, gpus, rows, options.lines, options.limits, health=health)
        evidence = subject.evidence
        diagnosis, of_diagnosis = _diagnosed(session, subject)
        if options.no_catalogue:
            diagnosis = msgspec.structs.replace(diagnosis, causes=(), folded=())
        diagnosis = msgspec.structs.replace(diagnosis, causes=attempts.tried(session, diagnosis, gpus))
        if not any(isinstance(row.reading, LoadReading) and row.reading.slices for row in rows):
            # Where a GPU was under load until it died, the environment is not at fault.
            diagnosis = with_bisection(diagnosis, attempts.bisected(session, diagnosis, facts, gpus), evidence)
        rows = with_reasons(with_one_voice(rows, diagnosis, gpus), diagnosis, gpus)
        return conclude(
            with_gaps(
                Report(
                    schema_version=SCHEMA_VERSION,
                    gpudiag_version=gpudiag.__version__,
                    started_at=started_at.isoformat(timespec="seconds"),
                    duration_s=round(time.monotonic() - began, 3),
                    command=options.command,
                    isolation=options.isolation,
                    world=options.machine.world,
                    limits=options.limits,
                    facts=facts,
                    gpus=gpus,
                    rows=rows,
                    health=health,
                    signal=signals.received,
                    level=level,
                    lines=options.lines,
                    diagnosis=diagnosis,
                    accounts=account(evidence, diagnosis),
                    settings=options.settings,
                    skip=options.skip,
                    notes=(*options.notes, *of_diagnosis, *_notes(session, scheduler)),
                )
            )
        )


def gather(options: Options, observer: Observer, signals: Signals) -> Facts:
    """Gather only the facts about the host; nothing runs on a device."""
    with supervise({PLAIN: ServerSpec(env=environment_for(options.machine))}, Bounds()) as children:
        # The first calls of the driver may take seconds, and say nothing of GPUs.
        families = tuple(family for family in FAMILIES if family != "calls")
        return gather_facts(Session(options, children, observer, signals, None), families)


def _with_calls(facts: Facts, calls: tuple[TimedCall, ...]) -> Facts:
    known = CallFacts() if isinstance(facts.calls, Unknown) else facts.calls
    return msgspec.structs.replace(facts, calls=msgspec.structs.replace(known, calls=(*known.calls, *calls)))


def _with_limits(facts: Facts, before: tuple[Limit, ...]) -> Facts:
    """Return the facts with this process's limits and what they refused meanwhile; a simulated machine has them,
    too."""
    if isinstance(facts.container, Unknown):
        return facts
    now = limits_after(Path("/"), before)
    return msgspec.structs.replace(facts, container=msgspec.structs.replace(facts.container, limits=now))


def _failed_on_a_gpu(rows: tuple[Row, ...]) -> bool:
    """Return whether the driver may have written something into the kernel's log since the facts were gathered."""
    return any(row.devices and (isinstance(row.outcome, Broken) or row.status == "fail") for row in rows)


def _compared(rows: tuple[Row, ...], facts: Facts, limits: Limits, health: tuple[GpuHealth, ...]) -> tuple[Row, ...]:
    """Return ``rows``, those judged again that compare GPUs: now all of them have ended."""
    return tuple(
        judgement.judged(row, entry, facts, limits, judgement.beside_of(row, rows, health))
        if (entry := catalogue.get(row.probe)).compares and isinstance(row.reading, LoadReading)
        else row
        for row in rows
    )


def _of_the_host_again(row: Row, facts: Facts, limits: Limits) -> Row:
    """Return ``row`` judged by the run's completed facts, if the row judges only facts."""
    entry = catalogue.get(row.probe)
    again = entry.reading is None and isinstance(row.outcome, Judged)
    return judgement.judged(row, entry, facts, limits) if again else row


def _diagnosed(session: Session, subject: judgement.JudgedSubject) -> tuple[Diagnosis, tuple[str, ...]]:
    """Return the diagnosis, and a note if a signal cut it short: a run that was stopped waits for it no longer than
    :data:`LAST_S`."""
    session.observer.phase("diagnosis")
    stopped_at: list[float] = []

    def stopped() -> str:
        if why := session.stopped():
            stopped_at.append(time.monotonic())
        return why[1] if why and time.monotonic() - stopped_at[0] >= LAST_S else ""

    part_s = min(judgement.PART_S, max(judgement.LEAST_S, session.options.timeout_s or judgement.PART_S))
    apart = judgement.Apart(session.children, PLAIN, stopped, session.observer.tick, part_s)
    diagnosis = judgement.diagnosed(subject, apart)
    why = session.stopped()
    if why is None or why[0] is not NoReading.INTERRUPTED:
        return diagnosis, ()
    failed = tuple(failure for failure in diagnosis.failed if failure.part != judgement.REST)
    cut_short = tuple(
        f"{failure.part} was {failure.why}: a cause may be missing"
        for failure in diagnosis.failed
        if failure.part == judgement.REST
    )
    return msgspec.structs.replace(diagnosis, failed=failed), cut_short


def _notes(session: Session, scheduler: Scheduler) -> tuple[str, ...]:
    """Return a sentence for each GPU that could not be locked, and for what was run without being selected.

    Also one for each fault of a simulated machine that had no effect: the run shows nothing about such a fault.
    """
    without_effect = session.options.machine.without_effect()
    return (*session.devices.unlocked.values(), *filter(None, [scheduler.note]), *without_effect)
