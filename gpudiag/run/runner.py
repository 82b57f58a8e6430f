"""One run: facts, then a plan, then a row for every probe and device, then the report."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Protocol

import msgspec

import gpudiag
from gpudiag import catalogue
from gpudiag.catalogue import Entry
from gpudiag.cause import TRACE, Evidence
from gpudiag.errors import shortage
from gpudiag.facts import FAMILIES, calls
from gpudiag.hardware.locks import Devices
from gpudiag.isolate import Bounds, Ended, Job, ServerSpec, Supervision, scratch_folder, supervise
from gpudiag.knowledge import log_lines
from gpudiag.knowledge.placement import parse_placements
from gpudiag.knowledge.variables import GRAPH_FLAGS, JIT_BY_DEFAULT, PLUGINS, without_compiling
from gpudiag.model import facts as hostfacts
from gpudiag.model.diagnosis import Bisection, Diagnosis, FixAttempt, RootCause, Stage
from gpudiag.model.facts import Call, CallFacts, Facts, Unknown
from gpudiag.model.report import RUN_ENDED, Broken, Cause, Gpu, Judged, Limits, Report, Row, Settings, Skipped, conclude
from gpudiag.model.visibility import gpus_in_scope
from gpudiag.probe import Scope
from gpudiag.run import judgement
from gpudiag.run.accounts import account
from gpudiag.run.answers import Answers, is_hang
from gpudiag.run.bisect import here as bisect
from gpudiag.run.bisected import with_bisection
from gpudiag.run.machine import Machine
from gpudiag.run.plan import (
    CHILD_BYTES,
    CONTEXT_BYTES,
    MOST_CHILDREN,
    Task,
    bytes_needed,
    chosen_level,
    default_jobs,
    driver_s,
    environment_of,
    lack_of_gpus,
    lack_of_memory,
    lack_of_peace,
    lack_of_version,
    planned,
    room_on,
    uuids_of,
)
from gpudiag.run.signals import Signals
from gpudiag.run.trial import OnGpu
from gpudiag.run.views import with_one_voice
from gpudiag.text import one_line

PLAIN = "plain"
"""The server that has imported nothing; it gathers facts and runs what needs a new interpreter."""
TENSORFLOW = "tensorflow"

FACTS_DEADLINE_S = 15.0
DRIVER_DEADLINE_S = 40.0
"""For the facts that ask the driver: some take 30 s to start it, and one that takes longer counts as hung."""
ASK_THE_DRIVER = ("driver", "nvml", "cuda", "calls")
STARTS_OF_THE_DRIVER = 3
"""At most, one after the other, within a probe: by itself, and by copies of it."""
TRIAL_S = 60.0
"""How long a fix that is tried may take to run an operation on a GPU."""
LAST_S = 3.0
"""How long a run that was stopped, by a signal or its deadline, waits for the diagnosis, which usually takes less."""
CONTEXTS = "discovery.logical_devices"
"""The probe that says why no CUDA context can be created."""
DIAGNOSED_BY = (TRACE, CONTEXTS)
"""The probes that the diagnosis rests on."""
TICK_S = 0.1
KEPT_LINES = 40
KEPT_OTHERS = 20
"""Before the last lines: this many errors, and this many lines with known messages."""
KEPT_CHARACTERS = 500

# These replace the caller's log levels, which may hide the lines that a verdict is based on (TF_CPP_MIN_LOG_LEVEL=3
# hides nearly all of them), or flood the log. TensorFlow reads them while it is imported.
LOG_LEVELS: dict[str, str | None] = {
    **dict.fromkeys(
        ("TF_CPP_MIN_LOG_LEVEL", "TF_CPP_MIN_VLOG_LEVEL", "TF_CPP_MAX_VLOG_LEVEL", "TF_CPP_LOG_THREAD_ID"), None
    ),
    "TF_CPP_VMODULE": "dso_loader=1",  # names each library that cannot be opened, as no other level does (2.18-2.21)
}

REPLACED = (*LOG_LEVELS, JIT_BY_DEFAULT, GRAPH_FLAGS, PLUGINS)
"""All that :func:`environment_for` may replace."""


def environment_for(machine: Machine) -> dict[str, str | None]:
    """Return what is set (or, with None, cleared) for every child on ``machine``, beside what its probe declares."""
    changes = {**machine.environment, **LOG_LEVELS, **without_compiling(os.environ)}
    # When TensorFlow has loaded plug-ins, it queries the devices, and the process that imported it cannot be forked:
    # discovery.trace alone loads them. If there are none, the import fails, and must.
    plugins = os.environ.get(PLUGINS)
    return changes | {PLUGINS: None} if plugins and Path(plugins).exists() else changes


class Observer(Protocol):
    """Is informed of the progress of a run."""

    def phase(self, text: str, total: int | None = None) -> None: ...

    def started(self, label: str) -> None: ...

    def finished(self, row: Row, label: str) -> None: ...

    def tick(self) -> None: ...


@dataclass(frozen=True)
class Options:
    """What to run and how."""

    entries: tuple[Entry, ...]
    level: str | None = None
    """``quick`` or ``full``; None: full, unless another process computes on a GPU in scope."""
    disturb: bool = False
    """True: probes that measure or fill device memory also run on GPUs that others use."""
    isolation: str = "fork"
    """``fork`` or ``spawn``."""
    jobs: int | None = None
    """Children at the same time; None: as many as processors and memory allow."""
    timeout_s: float | None = None
    """For each probe and for TensorFlow's import; None: what each probe declares."""
    deadline_s: float | None = None
    """For the whole run."""
    lines: tuple[str, ...] = ()
    """Of the log of the user's own program; the diagnosis reads them."""
    limits: Limits = field(default_factory=Limits)
    command: tuple[str, ...] = ()
    machine: Machine = field(default_factory=Machine)
    lock_wait_s: float = 300.0
    """How long a probe waits for a GPU that another run of gpudiag holds."""
    settings: Settings | None = None
    notes: tuple[str, ...] = ()
    """Notes of the report, from before the run."""
    bisect_s: float = 0.0
    """How long the environment may be bisected if it is not known why no GPU is used; 0: not at all."""
    catalogue: bool = True
    """False: the diagnosis names no cause, so that tests see what is found without them."""


def run(options: Options, observer: Observer, signals: Signals) -> Report:
    """Run the probes of ``options`` and return the report, also if a signal or the deadline ends the run early."""
    started_at = datetime.now(timezone.utc)
    began = time.monotonic()
    entries = options.entries
    required = catalogue.get("host.gpus")
    if options.limits.require_gpus and required not in entries:
        entries = (required, *entries)
    until = None if options.deadline_s is None else began + options.deadline_s
    bounds = Bounds() if options.timeout_s is None else Bounds(preload_s=options.timeout_s)
    environment = environment_for(options.machine)
    preload = "preload_simulated" if options.machine.world.simulated else "preload"
    servers = {
        PLAIN: ServerSpec(env=environment),
        TENSORFLOW: ServerSpec(preload=f"gpudiag.run.worker:{preload}", what="import tensorflow", env=environment),
    }
    with supervise(servers, bounds) as children, signals.waking(children.wakeup_fd):
        work = _Run(options, children, observer, signals, until)
        if any(_server(entry, options) == TENSORFLOW for entry in entries):
            children.prepare(TENSORFLOW)  # imports while the facts are gathered
        facts = work.gather_facts(FAMILIES)
        gpus = gpus_in_scope(facts)
        level = chosen_level(options.level, gpus, facts)
        if level.name == "quick":
            entries = tuple(entry for entry in entries if entry.probe.quick)
        rows = work.rows(planned(entries, gpus), facts, gpus)
        if silent := work.silent_gpus():
            facts = _with_calls(facts, silent)
            rows = tuple(_of_the_host_again(row, facts, options.limits) for row in rows)
        diagnosis = work.diagnosed(judgement.Subject(facts, gpus, rows, options.lines, options.limits))
        if not options.catalogue:
            diagnosis = msgspec.structs.replace(diagnosis, causes=(), folded=())
        diagnosis = msgspec.structs.replace(diagnosis, causes=work.tried(diagnosis, gpus))
        diagnosis = with_bisection(diagnosis, work.bisected(diagnosis, facts, gpus), facts)
        rows = with_one_voice(rows, diagnosis)
        return conclude(
            Report(
                schema_version=1,
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
                signal=signals.received,
                level=level,
                lines=options.lines,
                diagnosis=diagnosis,
                accounts=account(Evidence(facts, gpus, rows, options.lines), diagnosis),
                settings=options.settings,
                notes=(*options.notes, *work.notes()),
            )
        )


def gather(options: Options, observer: Observer, signals: Signals) -> Facts:
    """Gather the host facts alone; nothing is run on a device."""
    with supervise({PLAIN: ServerSpec(env=environment_for(options.machine))}, Bounds()) as children:
        return _Run(options, children, observer, signals, None).gather_facts(
            tuple(family for family in FAMILIES if family != "calls")  # it may take seconds, and says nothing of GPUs
        )


def rejudge(report: Report, work: judgement.Work = judgement.here) -> Report:
    """Return ``report`` with every row that has something to judge judged again, by the probes as they are now."""
    subject = judgement.Subject(report.facts, report.gpus, report.rows, report.lines, report.limits)
    rows = judgement.rows_again(subject, work)
    diagnosis = judgement.diagnosed(msgspec.structs.replace(subject, rows=rows), work)
    trials = {(cause.rule, str(cause.trial.change)): cause.trial for cause in report.diagnosis.causes if cause.trial}
    causes = tuple(
        msgspec.structs.replace(cause, trial=trials.get((cause.rule, str(cause.trial.change)), cause.trial))
        if cause.trial
        else cause
        for cause in diagnosis.causes
    )
    diagnosis = msgspec.structs.replace(diagnosis, causes=causes)
    diagnosis = with_bisection(diagnosis, report.diagnosis.bisection, report.facts)
    accounts = account(Evidence(report.facts, report.gpus, rows, report.lines), diagnosis)
    rows = with_one_voice(rows, diagnosis)
    return conclude(msgspec.structs.replace(report, rows=rows, diagnosis=diagnosis, accounts=accounts))


def rejudge_apart(report: Report) -> Report:
    """As :func:`rejudge`, in a child process: a crafted report can make the judging take for ever."""
    with supervise({PLAIN: ServerSpec()}, Bounds()) as children:
        return rejudge(report, judgement.Apart(children, PLAIN))


def _with_calls(facts: Facts, calls: tuple[Call, ...]) -> Facts:
    known = () if isinstance(facts.calls, Unknown) else facts.calls.calls
    return msgspec.structs.replace(facts, calls=CallFacts((*known, *calls)))


def _of_the_host_again(row: Row, facts: Facts, limits: Limits) -> Row:
    """Return ``row`` judged by facts that the run has completed, if facts are all that it judges."""
    entry = catalogue.get(row.probe)
    again = entry.reading is None and isinstance(row.outcome, Judged)
    return judgement.judged(row, entry, facts, limits) if again else row


def _server(entry: Entry, options: Options) -> str | None:
    """Return the server a probe runs on; None for a probe that has nothing to run."""
    if entry.reading is None:
        return None
    return PLAIN if options.isolation == "spawn" else TENSORFLOW


class _Run:
    """The state of a run: which children run, and which devices are in use."""

    def __init__(
        self,
        options: Options,
        children: Supervision,
        observer: Observer,
        signals: Signals,
        until: float | None,
    ) -> None:
        self._options = options
        self._children = children
        self._observer = observer
        self._signals = signals
        self._until = until
        self._devices = Devices(options.machine.locks)
        self._ended: dict[str, Ended] = {}
        """Ended probes whose second process still runs."""
        self._failed_peers: dict[str, Ended] = {}
        """Second processes that broke a probe which still runs."""
        self._without_context: list[tuple[Task, Row]] = []
        """Probes that got no CUDA context: one probe says why, and the others are then skipped."""
        self._added = ""
        """What was run without having been selected."""
        self._meetings: dict[str, str] = {}
        """Folders in which the two processes of a probe exchange messages."""
        self._answers = Answers(children, PLAIN, options.timeout_s)

    def gather_facts(self, families: tuple[str, ...]) -> Facts:
        """Gather each of the families in a separate child; one that does not answer is ``Unknown``."""
        self._observer.phase("host facts")
        # The servers clear or replace these for children, and they are facts too.
        own = {name: os.environ.get(name) for name in (*REPLACED, "TMPDIR")}
        root = {} if self._options.machine.root is None else {"root": str(self._options.machine.root)}
        for family in families:
            target = "gpudiag.facts:gather_family"
            deadline_s = FACTS_DEADLINE_S
            if family in ASK_THE_DRIVER:
                deadline_s = min(DRIVER_DEADLINE_S, self._options.timeout_s or DRIVER_DEADLINE_S)
                deadline_s = deadline_s if family == "calls" else max(FACTS_DEADLINE_S, deadline_s)
            self._children.start(Job(family, target, {"family": family, **root}, deadline_s, PLAIN, env=own))
        gathered: dict[str, hostfacts.Family] = {}
        while len(gathered) < len(families):
            for ended in self._children.wait(TICK_S):
                gathered[ended.key] = _family(ended)
            self._observer.tick()
            if stopped := self._stopped():
                for family in families:
                    self._children.kill(family, *stopped)
        facts = Facts(**gathered)  # type: ignore[arg-type]  # each family was decoded as the type of its field
        self._answers.driver_s = driver_s(facts)
        return facts

    def rows(self, tasks: list[Task], facts: Facts, gpus: tuple[Gpu, ...]) -> tuple[Row, ...]:
        """Return a row for every task, in their order."""
        self._observer.phase("probes", len(tasks))
        devices = {device.pci_bus_id: device for device in facts.nvml_devices}
        self._devices.room = {gpu.uuid: room_on(gpu, devices[gpu.pci_bus_id]) for gpu in gpus}
        rows: dict[str, Row] = {}
        pending: list[Task] = []
        stopped = self._stopped()  # then the facts are incomplete, and nothing is judged by them
        for task in tasks:
            early = None if stopped else self._without_a_child(task, facts, gpus)
            if early is None:
                pending.append(task)
            else:
                self._add(rows, task, early)
        running: dict[str, Task] = {}
        slots = self._options.jobs or default_jobs()
        try:
            while pending or running or self._answers.asked:
                if stopped := self._stopped():
                    self._end(pending, running, rows, *stopped)
                self._start_some(pending, running, slots, rows)
                for ended in self._children.wait(TICK_S):
                    self._collect(ended, running, rows, facts)
                for key, task in running.items():
                    if not task.entry.probe.exclusive:
                        self._answers.waits(key, task.entry.name, task.gpus)
                if not stopped:
                    failed = "" if pending or running or self._answers.asked else _first_failed(tasks, rows)
                    asked = self._explaining(failed, tasks, facts, gpus)
                    tasks, pending = tasks + asked, pending + asked
                self._observer.tick()
            explained = any(rows[task.key].status == "fail" for task in tasks if task.entry.name == CONTEXTS)
            for task, row in self._without_context:
                skipped = Skipped(f"no CUDA context could be created: {CONTEXTS} says why")
                self._add(rows, task, msgspec.structs.replace(row, outcome=skipped) if explained else row)
        finally:
            self._devices.close()
            for folder in self._meetings.values():
                shutil.rmtree(folder, ignore_errors=True)
        return tuple(rows[task.key] for task in tasks)

    def _end(
        self, pending: list[Task], running: dict[str, Task], rows: dict[str, Row], cause: Cause, detail: str
    ) -> None:
        """End all that runs and begin nothing more."""
        for task in pending:
            self._add(rows, task, Row(task.entry.name, uuids_of(task), _not_run(cause, detail), 0.0))
        pending.clear()
        for key in (*running, *self._answers.asked):
            self._children.kill(key, cause, detail)

    def _explaining(self, failed: str, tasks: list[Task], facts: Facts, gpus: tuple[Gpu, ...]) -> list[Task]:
        """Return tasks that were not selected, and that say why no context can be created, or why ``failed`` did."""
        selected = {task.entry.name for task in tasks}
        explain = failed and TRACE not in selected
        wanted = DIAGNOSED_BY if explain else (CONTEXTS,) if self._without_context else ()
        missing = tuple(catalogue.get(name) for name in wanted if name not in selected)
        asked = [task for task in planned(missing, gpus) if self._without_a_child(task, facts, gpus) is None]
        if asked and explain:
            self._observer.phase("probes that say why", len(asked))
            self._added = f"{' and '.join(task.entry.name for task in asked)} ran too, because {failed} failed"
        return asked

    def diagnosed(self, subject: judgement.Subject) -> Diagnosis:
        """Return the diagnosis; a run that was stopped waits for it no longer than :data:`LAST_S`."""
        self._observer.phase("diagnosis")
        stopped_at: list[float] = []

        def stopped() -> str:
            if why := self._stopped():
                stopped_at.append(time.monotonic())
            return why[1] if why and time.monotonic() - stopped_at[0] >= LAST_S else ""

        part_s = min(judgement.PART_S, max(judgement.LEAST_S, self._options.timeout_s or judgement.PART_S))
        apart = judgement.Apart(self._children, PLAIN, stopped, self._observer.tick, part_s)
        return judgement.diagnosed(subject, apart)

    def tried(self, diagnosis: Diagnosis, gpus: tuple[Gpu, ...]) -> tuple[RootCause, ...]:
        """Return the causes; each fix that is a change of variables was tried, one after the other.

        Only if no GPU is used or operations fail: what works without the fix says nothing about the fix.
        """
        used = diagnosis.broken_at is None
        return tuple(
            cause
            if cause.trial is None or (used and cause.stage is not Stage.FIRST_OP)
            else msgspec.structs.replace(cause, trial=self._try(cause.rule, cause.trial, gpus))
            for cause in diagnosis.causes
        )

    def bisected(self, diagnosis: Diagnosis, facts: Facts, gpus: tuple[Gpu, ...]) -> Bisection | None:
        """Return what of the environment keeps TensorFlow from its GPU; None if that is known, or not asked."""
        within_s = self._options.bisect_s
        if not within_s or self._stopped() or not bisect.is_called_for(diagnosis, facts):
            return None
        if not self._taken(gpus):
            return None
        shown = -1

        def tick(tried: int) -> None:
            nonlocal shown
            if tried != shown:
                self._observer.phase(f"bisecting the environment: try {tried}")
            shown = tried
            self._observer.tick()

        devices = {device.pci_bus_id: device for device in facts.nvml_devices}
        room = min((room_on(gpu, devices[gpu.pci_bus_id]) for gpu in gpus), default=MOST_CHILDREN)
        try:
            return bisect.bisected(
                self._children,
                PLAIN,
                facts,
                environment=self._options.machine.environment,
                machine=None if self._options.machine.root is None else self._options.machine.root.parent,
                jobs=min(self._options.jobs or default_jobs(), room),
                within_s=within_s,
                stopped=lambda: (self._stopped() or (None, ""))[1],
                tick=tick,
            )
        finally:
            self._devices.release(gpus)

    def notes(self) -> tuple[str, ...]:
        """Return a sentence for each GPU that could not be locked, and for what was run without being selected."""
        return (*self._devices.unlocked.values(), *filter(None, [self._added]))

    def _other_run(self, gpus: tuple[Gpu, ...]) -> str:
        holder = self._devices.holder(gpus)
        return f"another run of gpudiag ({holder})" if holder else "another run of gpudiag"

    def _taken(self, gpus: tuple[Gpu, ...]) -> bool:
        """Wait until the GPUs can be used beside other runs; False if that takes too long."""
        while not self._devices.take(gpus, exclusive=False):
            if self._devices.waited_s(gpus) > self._options.lock_wait_s or self._stopped():
                return False
            time.sleep(TICK_S)
        return True

    def _try(self, rule: str, trial: FixAttempt, gpus: tuple[Gpu, ...]) -> FixAttempt:
        self._observer.phase(f"trying the fix of {rule}")
        if not self._taken(gpus):
            return msgspec.structs.replace(trial, detail=f"{self._other_run(gpus)} holds a GPU")
        deadline_s = (self._options.timeout_s or TRIAL_S) + (self._options.timeout_s or Bounds().preload_s)
        env = {"TF_FORCE_GPU_ALLOW_GROWTH": "true", **trial.change}  # other processes may use the GPU
        self._children.start(Job(rule, "gpudiag.run.trial:run_on_gpu", {}, deadline_s, PLAIN, fresh=True, env=env))
        ended: list[Ended] = []
        while not ended:
            if stopped := self._stopped():
                self._children.kill(rule, *stopped)
            ended = self._children.wait(TICK_S)
            self._observer.tick()
        self._devices.release(gpus)
        if ended[0].value is None:
            last = _last_error(ended[0])
            detail = f"{ended[0].detail}: {last}" if last else ended[0].detail
            return msgspec.structs.replace(trial, outcome="does not help", detail=detail)
        done = msgspec.json.decode(ended[0].value, type=OnGpu)
        if not done.listed:
            return msgspec.structs.replace(trial, outcome="does not help", detail="TensorFlow lists no GPU")
        if done.device:
            return msgspec.structs.replace(trial, outcome="works", detail=done.device)
        detail = f"the GPU is listed, but an operation on it fails: {' '.join(done.failed.split())}"
        return msgspec.structs.replace(trial, outcome="helps in part", detail=detail)

    def _collect(self, ended: Ended, running: dict[str, Task], rows: dict[str, Row], facts: Facts) -> None:
        """Process the end of a job; when the last job of a task has ended, its row is added."""
        if ended.key in self._answers.asked:
            why = self._answers.hear(ended)
            for key, task in running.items() if why else ():
                if ended.key in uuids_of(task):
                    self._children.kill(key, Cause.TIMEOUT, why or "")
            return
        task = running.pop(ended.key)
        if ended.key == task.key:
            self._ended[task.key] = ended
            if task.peer_key in running:
                self._children.kill(task.peer_key, Cause.INTERRUPTED, "the probe has ended")
        elif task.key in running and ended.cause is not None:
            self._failed_peers[task.key] = ended
            self._children.kill(task.key, ended.cause, f"its second process: {ended.detail}")
        if {task.key, task.peer_key} & running.keys():
            return
        self._devices.release(task.gpus)
        if folder := self._meetings.pop(task.key, None):
            shutil.rmtree(folder, ignore_errors=True)
        ended = self._ended.pop(task.key)
        if peer := self._failed_peers.pop(task.key, None):  # its last words say why
            ended = replace(ended, stdout=ended.stdout + peer.stdout, stderr=ended.stderr + peer.stderr)
        row = self._row(task, ended, facts)
        if is_hang(ended) and not self._stopped():
            self._answers.late(task.entry.name, task.gpus)
        if ended.cause is Cause.NO_CONTEXT and task.entry.name != CONTEXTS:
            self._without_context.append((task, row))
        else:
            self._add(rows, task, row)

    def silent_gpus(self) -> tuple[Call, ...]:
        """Return the calls that never returned on a GPU."""
        return tuple(call for call, _ in self._answers.silent.values() if call is not None)

    def _add(self, rows: dict[str, Row], task: Task, row: Row) -> None:
        rows[task.key] = row
        self._observer.finished(row, task.label)

    def _stopped(self) -> tuple[Cause, str] | None:
        """Return why the run must end now, or None while it may continue."""
        if self._signals.received is not None:
            return Cause.INTERRUPTED, f"stopped by {signal.Signals(self._signals.received).name}"
        if self._until is not None and time.monotonic() >= self._until:
            return Cause.TIMEOUT, f"the deadline of {self._options.deadline_s:g} s {RUN_ENDED}"
        return None

    def _without_a_child(self, task: Task, facts: Facts, gpus: tuple[Gpu, ...]) -> Row | None:
        """Return the row of a task that is skipped or that judges only facts; None if a child must measure."""
        entry = task.entry
        row = Row(entry.name, uuids_of(task), Skipped(""), 0.0)
        needs = entry.probe.needs
        if entry.reading is None:
            return judgement.judged(row, entry, facts, self._options.limits)
        if needs.tensorflow and not isinstance(facts.calls, Unknown) and facts.calls.driver_hangs:
            hung = facts.calls.hung[0]
            why = f"the driver hangs: {hung.name} did not return within {hung.waited_s:.0f} s"
            return msgspec.structs.replace(row, outcome=Skipped(why))
        if needs.tensorflow and not isinstance(facts.tensorflow, Unknown) and facts.tensorflow.module_path is None:
            return msgspec.structs.replace(row, outcome=Skipped("TensorFlow is not installed"))
        if len(task.gpus) < needs.gpus or (entry.probe.scope is not Scope.HOST and not gpus):
            return msgspec.structs.replace(row, outcome=Skipped(lack_of_gpus(needs.gpus, facts, gpus)))
        lack = (
            lack_of_version(needs.versions, facts)
            or lack_of_memory(bytes_needed(entry), task.gpus, facts)
            or (entry.probe.exclusive and not self._options.disturb and lack_of_peace(task.gpus, facts))
        )
        return msgspec.structs.replace(row, outcome=Skipped(lack)) if lack else None

    def _start_some(self, pending: list[Task], running: dict[str, Task], slots: int, rows: dict[str, Row]) -> None:
        for task in list(pending):
            if len(running) >= slots:
                return
            probe = task.entry.probe
            if silent := next((why for uuid, (_, why) in self._answers.silent.items() if uuid in uuids_of(task)), ""):
                pending.remove(task)
                self._add(rows, task, Row(task.entry.name, uuids_of(task), Skipped(silent), 0.0))
                continue
            if set(self._answers.asked) & set(uuids_of(task)):
                continue
            if not self._devices.take(task.gpus, exclusive=probe.exclusive):
                if self._devices.waited_s(task.gpus) > self._options.lock_wait_s:
                    pending.remove(task)
                    waited = f"held the GPU for more than {self._options.lock_wait_s:g} s (--lock-wait)"
                    detail = f"{self._other_run(task.gpus)} {waited}"
                    self._add(rows, task, Row(task.entry.name, uuids_of(task), Broken(Cause.TIMEOUT, detail), 0.0))
                continue
            pending.remove(task)
            self._observer.started(task.label)
            try:
                self._start(task)
            except OSError as error:
                self._devices.release(task.gpus)
                broken = Broken(Cause.NOT_STARTED, f"cannot create a folder for its messages: {shortage(error)}")
                self._add(rows, task, Row(task.entry.name, uuids_of(task), broken, 0.0))
                continue
            running[task.key] = task
            self._answers.begun(task.key)
            if task.entry.peered:
                running[task.peer_key] = task
                self._answers.begun(task.peer_key)

    def _start(self, task: Task) -> None:
        """Start the child of ``task``, and its second process if the probe has one."""
        server = _server(task.entry, self._options)
        assert server is not None
        argument = {"probe": task.entry.name, "gpus": [msgspec.to_builtins(gpu) for gpu in task.gpus]}
        targets = {task.key: "gpudiag.run.worker:run_probe"}
        if task.entry.peered:
            self._meetings[task.key] = argument["meeting"] = scratch_folder()
            targets[task.peer_key] = "gpudiag.run.worker:run_peer"
        for key, target in targets.items():
            self._children.start(
                Job(
                    key=key,
                    target=target,
                    argument=argument,
                    deadline_s=self._deadline_s(task, server),
                    server=server,
                    fresh=server == PLAIN,
                    env=environment_of(task),
                    may_wait=not task.entry.peered,
                )
            )

    def _deadline_s(self, task: Task, server: str) -> float:
        allowed = self._options.timeout_s or task.entry.probe.deadline_s + STARTS_OF_THE_DRIVER * self._answers.driver_s
        if server == PLAIN:  # its child imports TensorFlow itself
            allowed += self._options.timeout_s or Bounds().preload_s
        return allowed

    def _row(self, task: Task, ended: Ended, facts: Facts) -> Row:
        lines = [*ended.stdout.splitlines(), *ended.stderr.splitlines()]
        row = Row(
            probe=task.entry.name,
            devices=uuids_of(task),
            outcome=Skipped(""),
            duration_s=round(ended.duration_s, 3),
            placements=parse_placements(lines),
            log=log_lines.of_a_child(lines, KEPT_LINES, KEPT_OTHERS, KEPT_CHARACTERS),
        )
        if ended.cause is not None:
            lack = lack_of_memory(CONTEXT_BYTES + CHILD_BYTES, task.gpus, facts)
            if ended.cause is Cause.NO_MEMORY and lack:
                return msgspec.structs.replace(row, outcome=Skipped(lack))
            return msgspec.structs.replace(row, outcome=Broken(ended.cause, ended.detail))
        assert ended.value is not None
        reading = msgspec.json.decode(ended.value)
        if not isinstance(reading, dict):
            detail = f"its reading is not a record but {type(reading).__name__}"
            return msgspec.structs.replace(row, outcome=Broken(Cause.BAD_RESULT, detail))
        return judgement.judged(msgspec.structs.replace(row, reading=reading), task.entry, facts, self._options.limits)


def _last_error(ended: Ended) -> str:
    """Return why a process ended that did not say why: its last fatal line, or its last error."""
    if ended.cause not in (Cause.NO_RESULT, Cause.SIGNAL):
        return ""
    found = [one for one in log_lines.parse(ended.stderr.splitlines()) if one.level in "EF"]
    worst = [one for one in found if one.level == "F"] or found
    return one_line(worst[-1].text)[:KEPT_CHARACTERS] if worst else ""


def _first_failed(tasks: list[Task], rows: dict[str, Row]) -> str:
    """Return the first probe whose child failed or broke; "" if none did.

    To explain what judges facts alone nothing need run, and what hangs would cost its deadline again.
    """
    for task in tasks:
        row = rows.get(task.key)
        if row is None:
            continue
        crashed = row.crash is not None and row.crash.cause is not Cause.TIMEOUT
        if crashed or (row.status == "fail" and row.reading is not None):
            return task.label
    return ""


def _not_run(cause: Cause, detail: str) -> Skipped | Broken:
    """Return the outcome of a probe that had not begun when the run ended.

    A run cut by its own deadline is broken, never green; one cut by a signal has that signal's exit status.
    """
    if cause is Cause.INTERRUPTED:
        return Skipped(f"not run: {detail}")
    return Broken(cause, f"not run: {detail}")


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
