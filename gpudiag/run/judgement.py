"""Runs judges and causes: in this process, or in a child that one of them may hang or crash.

A hanging cause surely ends only with its process, because C code may never check for signals. So each part of the work
is recorded before it begins and after it has ended. If a child dies, only the part that it had begun is lost; that part
is named, and another child continues with the next one. A log alone is judged in this process, because children cost
more than the work; an alarm ends a cause that hangs in Python code or in a regular expression, and causes do nothing
else there.
"""

from __future__ import annotations

import faulthandler
import importlib
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import msgspec

from gpudiag import catalogue, causes
from gpudiag.catalogue import Entry
from gpudiag.cause import Evidence
from gpudiag.errors import shortage
from gpudiag.isolate import Job, JobResult, Supervision, run_to_end, scratch_folder
from gpudiag.knowledge.log import recognised
from gpudiag.model.diagnosis import Diagnosis, Failed
from gpudiag.model.facts import Facts, Unknown
from gpudiag.model.health import GpuHealth
from gpudiag.model.program import ProgramTrace
from gpudiag.model.reading import decode_hook
from gpudiag.model.report import AnyOutcome, Broken, Gpu, Interrupted, Judged, Limits, NoReading, Row, Skipped
from gpudiag.probe import NOTHING_BESIDE, Beside, LoadReading, Reading
from gpudiag.record import Record
from gpudiag.run import diagnosis, views
from gpudiag.run.diagnosis import PartResult

PART_S = 10.0
"""Time limit for one cause or judge; they normally take milliseconds."""
LEAST_S = 1.0
"""The least time limit: it includes the import of a cause, and the probes' own timeout may be shorter."""
ALL_S = 60.0
"""Time limit for all causes and judges together."""
WATCHED_S = 1.0
"""How long one thread watches consecutive parts. A thread for each part would take 60 of the 67 ms of a diagnosis."""

REST = "the rest of the diagnosis"


class JudgedSubject(Record, dict=True):
    """A report or a log that is judged."""

    facts: Facts
    gpus: tuple[Gpu, ...] = ()
    rows: tuple[Row, ...] = ()
    lines: tuple[str, ...] = ()
    limits: Limits = Limits()
    program: ProgramTrace | None = None
    health: tuple[GpuHealth, ...] = ()

    @cached_property
    def evidence(self) -> Evidence:
        return Evidence(self.facts, self.gpus, self.rows, self.lines, self.limits, traced=self.program)


class Done(Record):
    """The result of a part: the new outcome of a row, or the finding of a part of the diagnosis."""

    outcome: AnyOutcome | None = None
    part: PartResult | None = None


Parts = Iterator[tuple[str, Callable[[], Done]]]


def judged(row: Row, entry: Entry, facts: Facts, limits: Limits, beside: Beside = NOTHING_BESIDE) -> Row:
    """Return ``row`` with the outcome that its reading gives; a reading that cannot be judged is broken.

    A probe with unknown facts never passes; if gpudiag itself is the reason, the probe is broken.
    """
    unknown = {name: family for name in entry.probe.families if isinstance(family := getattr(facts, name), Unknown)}
    reasons = "; ".join(dict.fromkeys(family.reason for family in unknown.values()))
    outcome: AnyOutcome
    try:
        outcome = _of_the_whole_time(views.judge(entry, row.reading, facts, limits, beside), row.reading)
        msgspec.json.encode(outcome)  # a text that JSON cannot hold must not cost the whole report
    except msgspec.ValidationError as error:
        outcome = Broken(NoReading.BAD_RESULT, f"its reading is malformed: {error}")
    except (Exception, SystemExit) as error:  # a bug in a judge breaks its own row and no other
        outcome = Broken(NoReading.EXCEPTION, f"judging raised {type(error).__name__}: {error!a}")
    if any(family.ours for family in unknown.values()):
        outcome = Broken(NoReading.NOT_STARTED, reasons)
    elif unknown and isinstance(outcome, Judged) and not outcome.findings:
        outcome = Skipped(f"the facts that it judges are not known ({', '.join(unknown)}): {reasons}")
    return msgspec.structs.replace(row, outcome=outcome)


def _of_the_whole_time(outcome: Judged, reading: object) -> AnyOutcome:
    """Return ``outcome``; if the load did not have its time, for no fault of the GPU, and nothing was found until then:
    how it ended."""
    if not isinstance(reading, LoadReading) or reading.ended is None or reading.failed or outcome.findings:
        return outcome
    until = f"{reading.ended.detail}; nothing was found in {reading.measured_s:.0f} of {reading.planned_s:.0f} s"
    if reading.ended.cause is NoReading.INTERRUPTED:
        return Interrupted(until)
    return reading.ended


def beside_of(row: Row, rows: Iterable[Row], health: tuple[GpuHealth, ...]) -> Beside:
    """Return what else was measured in a run of these rows, for the judge of ``row``."""
    same = (other.reading for other in rows if other.probe == row.probe and other.devices != row.devices)
    return Beside(tuple(reading for reading in same if isinstance(reading, LoadReading)), health)


def is_of_another_version(row: Row, entry: Entry) -> bool:
    """Return whether the reading of a saved row is not one of the probe as it is now.

    A probe may measure more today than in the report. Missing figures cannot be judged, and the old outcome stays true.
    """
    return entry.reading is not None and not isinstance(row.reading, Reading)


def _rows(subject: JudgedSubject) -> Parts:
    """Yield the parts that judge rows again: each row that has a reading, by number."""
    entries_by_name = {entry.name: entry for entry in catalogue.entries()}
    for number, row in enumerate(subject.rows):
        entry = entries_by_name.get(row.probe)
        if entry is not None and isinstance(row.outcome, Judged) and not is_of_another_version(row, entry):
            yield str(number), lambda row=row, entry=entry: _outcome(row, entry, subject)  # type: ignore[misc]


def _outcome(row: Row, entry: Entry, subject: JudgedSubject) -> Done:
    beside = beside_of(row, subject.rows, subject.health) if entry.compares else NOTHING_BESIDE
    return Done(outcome=judged(row, entry, subject.facts, subject.limits, beside).outcome)


def _diagnosis(subject: JudgedSubject) -> Parts:
    """Yield the parts of the diagnosis."""
    evidence = subject.evidence
    for part in diagnosis.parts(evidence):
        yield part, lambda part=part: Done(part=diagnosis.look(part, evidence))  # type: ignore[misc]


_WORK: dict[str, Callable[[JudgedSubject], Parts]] = {"rows": _rows, "diagnosis": _diagnosis}


@dataclass(frozen=True)
class Worked:
    """The results of the parts."""

    done: dict[str, Done]
    failed: dict[str, str]
    """Why each broken part ended, by part."""
    unfinished: str = ""
    """Why the remaining parts were not started."""


Work = Callable[[str, JudgedSubject], Worked]
"""A function that runs all parts of one kind."""


class _Overdue(BaseException):
    """A part took too long. Not an ``Exception``: no part may catch it."""


def _overdue(*_: object) -> None:
    raise _Overdue


@contextmanager
def _alarm() -> Iterator[Callable[[float], object]]:
    """Give what lets ``_Overdue`` be raised after so many seconds of the processor from then, 0 for never; outside the
    main thread, and on Windows, it never is.

    The time of the processor is used because a hanging part computes. On a busy machine a process may get one second in
    twenty without hanging.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield lambda _: None
        return
    handler = signal.signal(signal.SIGVTALRM, _overdue)
    before = signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    try:
        yield partial(signal.setitimer, signal.ITIMER_VIRTUAL)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, *before)
        signal.signal(signal.SIGVTALRM, handler)


def here(kind: str, subject: JudgedSubject) -> Worked:
    """Run the parts in this process; a part that takes longer than ``PART_S`` is ended alone."""
    worked = Worked({}, {})
    with _alarm() as set_alarm:
        for part, do in _WORK[kind](subject):
            try:
                set_alarm(PART_S)
                worked.done[part] = do()
                set_alarm(0)
            except _Overdue:
                worked.failed[part] = f"it took more than {PART_S:g} s"
    return worked


def diagnosed(subject: JudgedSubject, work: Work = here) -> Diagnosis:
    """Return the diagnosis of ``subject``; it names the parts that could not be examined."""
    worked = work("diagnosis", subject)
    results = {part: done.part for part, done in worked.done.items() if done.part is not None}
    result = diagnosis.combine(subject.evidence, results)
    failed = [Failed(part, why) for part, why in worked.failed.items()]
    if worked.unfinished:
        failed.append(Failed(REST, worked.unfinished))
    return msgspec.structs.replace(result, failed=(*result.failed, *failed))


def rows_again(subject: JudgedSubject, work: Work = here) -> tuple[Row, ...]:
    """Return the rows of ``subject``, judged by the current probes where there is a reading."""
    worked = work("rows", subject)
    rows = list(subject.rows)
    for number, row in enumerate(rows):
        done = worked.done.get(str(number))
        why = worked.failed.get(str(number)) or (worked.unfinished if isinstance(row.outcome, Judged) else "")
        if done is not None and done.outcome is not None:
            rows[number] = msgspec.structs.replace(row, outcome=done.outcome)
        elif why:
            rows[number] = msgspec.structs.replace(row, outcome=Broken(NoReading.EXCEPTION, f"judging it: {why}"))
    return tuple(rows)


class _Note(Record):
    """A line of the notes: a part has begun or is done."""

    part: str
    done: Done | None = None


@dataclass(frozen=True)
class Apart:
    """Runs the parts in children of the server ``server``; see :data:`Work`."""

    children: Supervision
    server: str
    stopped: Callable[[], str] = lambda: ""
    """Returns why the work must end now; "" to continue."""
    tick: Callable[[], None] = lambda: None
    """Called regularly."""
    part_s: float = PART_S
    all_s: float = ALL_S

    def __call__(self, kind: str, subject: JudgedSubject) -> Worked:
        try:
            with scratch_folder() as folder:
                (folder / "subject").write_bytes(msgspec.json.encode(subject))
                return self._work(kind, folder)
        except OSError as error:
            return Worked({}, {}, shortage(error))
        except UnicodeEncodeError as error:
            return Worked({}, {}, f"{type(error).__name__}: {error}")

    def _work(self, kind: str, folder: Path) -> Worked:
        until = time.monotonic() + self.all_s
        failed: dict[str, str] = {}
        while True:
            ended, why = self._child(kind, folder, until)
            begun, done = _read(folder)
            if ended.value is not None:
                return Worked(done, failed)
            culprit = next((part for part in begun if part not in done and part not in failed), "")
            if not culprit or self.stopped() or time.monotonic() >= until:
                return Worked(done, failed, f"{why}, at {culprit}" if culprit else why)
            failed[culprit] = why

    def _child(self, kind: str, folder: Path, until: float) -> tuple[JobResult, str]:
        """Let a child run the parts that have not begun; return how the child ended, and that in words."""
        argument = {"kind": kind, "folder": str(folder), "part_s": self.part_s}
        left_s = max(0.1, until - time.monotonic())
        job = Job(f"judge {kind}", "gpudiag.run.judgement:at_work", argument, left_s, self.server, fresh=False)

        def stopped() -> tuple[NoReading, str] | None:
            return (NoReading.INTERRUPTED, why) if (why := self.stopped()) else None

        result = run_to_end(self.children, job, stopped, self.tick)
        if _OVERDUE in result.stderr:
            return result, f"it took more than {self.part_s:g} s"
        return result, result.detail


_OVERDUE = "Timeout ("
"""The first line that ``faulthandler`` prints when it ends a process."""


def _read(folder: Path) -> tuple[list[str], dict[str, Done]]:
    """Return the parts that have begun, and the results of those that are done."""
    begun: list[str] = []
    done: dict[str, Done] = {}
    notes = Path(folder, "notes")
    for line in notes.read_bytes().splitlines() if notes.exists() else ():
        try:
            note = msgspec.json.decode(line, type=_Note)
        except msgspec.MsgspecError:  # cut short, by a child that died
            continue
        if note.done is None:
            begun.append(note.part)
        else:
            done[note.part] = note.done
    return begun, done


def import_all() -> None:
    """Import all families of facts and all causes, and make ready the table of messages and how a subject is read.

    This takes 0.3 s of processor time. After it a diagnosis, for which the user waits, takes less than 0.1 s.
    """
    from gpudiag.facts import FAMILIES  # not above: to explain a log takes none of them

    for family in FAMILIES:
        importlib.import_module(f"gpudiag.facts.{family}")
    causes.all_of_them()
    recognised("")
    msgspec.json.Decoder(JudgedSubject, dec_hook=decode_hook)


def at_work(argument: dict[str, Any]) -> bytes:
    """Run, in a child, the parts that no child has begun yet."""
    folder = Path(argument["folder"])
    subject = msgspec.json.decode(Path(folder, "subject").read_bytes(), type=JudgedSubject, dec_hook=decode_hook)
    rows = catalogue.decode_readings(subject.rows, imported_only=argument["kind"] != "rows")
    subject = msgspec.structs.replace(subject, rows=rows)
    begun, _ = _read(folder)
    watched_from = -WATCHED_S
    with Path(folder, "notes").open("ab", buffering=0) as notes:
        notes.write(b"\n")  # ends a line that was cut short
        for part, do in _WORK[argument["kind"]](subject):
            if part in begun:
                continue
            notes.write(msgspec.json.encode(_Note(part)) + b"\n")
            if (now := time.monotonic()) - watched_from >= WATCHED_S:
                watched_from = now
                # A thread of C does this and needs nothing of Python: it ends this process even inside ``re``.
                with suppress(RuntimeError):  # a limit of processes allows no thread: the deadline of all parts remains
                    faulthandler.dump_traceback_later(WATCHED_S + argument["part_s"], exit=True)
            done = do()
            notes.write(msgspec.json.encode(_Note(part, done)) + b"\n")
    faulthandler.cancel_dump_traceback_later()
    return b"null"
