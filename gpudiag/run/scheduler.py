"""Starts the probes of a run, as many at a time as there is room for, and collects their results."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from gpudiag import catalogue
from gpudiag.cause import TRACE
from gpudiag.errors import shortage
from gpudiag.folders import Folder
from gpudiag.isolate import scratch_folder
from gpudiag.model.facts import Facts
from gpudiag.model.report import AnyOutcome, Broken, Gpu, Interrupted, NoReading, Row, Skipped
from gpudiag.run.gpu_watch import is_hang, longest
from gpudiag.run.plan import (
    QUICK_FROM_S,
    Task,
    default_jobs,
    load_s,
    planned,
    room_on,
    start_rank,
    uuids_of,
    what_load_does,
)
from gpudiag.run.probe_run import EndedProbe, Postponed, ProbeRun, Running, Stuck, Waiting
from gpudiag.run.rows import not_started, row_of_run, row_without_child
from gpudiag.run.session import Session

if TYPE_CHECKING:
    from gpudiag.run.load import LoadOrder

CONTEXTS = "discovery.logical_devices"
"""The probe that explains why no CUDA context can be created."""
DIAGNOSED_BY = (TRACE, CONTEXTS)
"""The probes whose results the diagnosis needs."""


class Scheduler:
    """Schedules the probes of a run."""

    def __init__(self, session: Session, facts: Facts, gpus: tuple[Gpu, ...]) -> None:
        self._session = session
        self._facts = facts
        self._gpus = gpus
        self._runs: list[ProbeRun] = []
        self._meetings: list[Folder] = []
        """Where the processes of each probe of level stress meet."""
        self._loads: dict[str, LoadOrder] = {}
        """The orders of the tasks of level stress whose GPUs are locked, by the key of the task."""
        self.note = ""
        """Which probes ran without having been selected; "" if none did."""

    def rows(self, tasks: list[Task]) -> tuple[Row, ...]:
        """Run the probes and return a row for every task, in order; the rows of explaining probes come last."""
        session = self._session
        session.observer.phase("probes", [task.entry.name for task in tasks])
        devices = {device.pci_bus_id: device for device in self._facts.nvml_devices}
        session.devices.room = {gpu.uuid: room_on(gpu, devices[gpu.pci_bus_id]) for gpu in self._gpus}
        self._add(tasks)
        self._announce_load()
        slots = session.options.jobs or default_jobs()
        try:
            while self._is_busy():
                if stopped := session.stopped():
                    self._stop(*stopped)
                self._start_waiting(slots)
                session.jobs.poll()
                self._collect()
                self._watch()
                if not stopped:
                    self._add(self._explaining_tasks())
                session.observer.tick()
            self._settle_postponed()
        finally:
            session.devices.close()
            for run in self._runs:
                run.close()
            for meeting in self._meetings:
                meeting.close()
        return tuple(run.row for run in self._runs if run.row is not None)

    def _add(self, tasks: list[Task]) -> None:
        """Add tasks; a task that needs no child gets its row at once."""
        stopped = self._session.stopped()  # then the facts are incomplete, and nothing is judged by them
        for task in tasks:
            run = ProbeRun(task)
            self._runs.append(run)
            if not stopped and (row := self._row_without_child(task)) is not None:
                self._finish(run, row)

    def _announce_load(self) -> None:
        """Say what will happen to the GPUs before a probe of level stress begins."""
        waiting = [run.task for run in self._runs if isinstance(run.state, Waiting)]
        tasks = [task for task in waiting if task.entry.probe.stress]
        if tasks and not self._session.stopped():
            self._session.observer.note(what_load_does(tasks, self._session.options.for_s))

    def _row_without_child(self, task: Task) -> Row | None:
        return row_without_child(task, self._facts, self._gpus, self._session.options)

    def _is_busy(self) -> bool:
        """Return whether a task is still to be started or waited for."""
        under_way = any(isinstance(run.state, Waiting | Running | Stuck) for run in self._runs)
        return under_way or self._session.gpu_watch.is_asking

    def _finish(self, run: ProbeRun, row: Row) -> None:
        run.finish(row)
        self._session.observer.finished(row, run.task.label)

    def _stop(self, cause: NoReading, detail: str) -> None:
        """End all that runs and begin nothing more.

        A run ended by its own deadline is broken and never passes; a run ended by a signal is interrupted, and has that
        signal's exit status.
        """
        why = f"not run: {detail}"
        outcome = Interrupted(why) if cause is NoReading.INTERRUPTED else Broken(cause, why)
        for run in self._runs:
            if isinstance(run.state, Waiting):
                self._finish(run, not_started(run.task, outcome))
        self._session.jobs.kill_all(cause, detail)

    def _start_waiting(self, slots: int) -> None:
        """Start the waiting tasks that there is room for; skip those that need a GPU that hangs or is slow.

        A task that waits for its GPUs keeps later ones from taking them: it may need them alone.
        """
        awaited = set[str]()
        for run in sorted(self._runs, key=lambda run: start_rank(run.task)):
            if not isinstance(run.state, Waiting) or awaited.intersection(uuids_of(run.task)):
                continue
            under_way = [other for other in self._runs for _ in other.processes]
            if self._must_wait(run.task, under_way):
                continue
            if len(under_way) >= slots and not run.task.entry.probe.stress:
                return
            if reason := self._reason_to_skip(run.task):
                self._give_up(run, Skipped(reason))
            elif not self._session.gpu_watch.is_asked(run.task.gpus):
                self._start(run)
                if isinstance(run.state, Waiting):
                    awaited.update(uuids_of(run.task))

    def _must_wait(self, task: Task, under_way: list[ProbeRun]) -> bool:
        """Return whether a task waits until what is ``under_way`` has ended: nothing runs beside a probe of level
        stress."""
        others = [other.task.entry for other in under_way if other.task.entry is not task.entry]
        return bool(others) and bool(task.entry.probe.stress or any(entry.probe.stress for entry in others))

    def _take(self, task: Task) -> bool:
        """Lock the GPUs of a task. Those of all tasks of a probe of level stress are locked at once: the processes
        begin together, and none must wait for one that waits for another run of gpudiag."""
        if task.key in self._loads:
            return True
        devices, entry = self._session.devices, task.entry
        if not entry.probe.stress:
            return devices.take(task.gpus, exclusive=entry.probe.exclusive)
        runs = [run.task for run in self._runs if run.task.entry is entry and isinstance(run.state, Waiting)]
        gpus = tuple(gpu for other in runs for gpu in other.gpus)
        if not devices.take(gpus, exclusive=True):
            return False
        try:
            folder = scratch_folder()
        except OSError:
            devices.release(gpus)
            raise
        self._meetings.append(folder)
        skipped = {run.task.key for run in self._runs if run.row is not None and isinstance(run.row.outcome, Skipped)}
        entries = {task.entry.name: task.entry for run in self._runs if (task := run.task).key not in skipped}
        seconds = load_s(entry, tuple(entries.values()), self._session.options.for_s)
        from gpudiag.run.load import LoadOrder

        for number, other in enumerate(runs):
            self._loads[other.key] = LoadOrder(folder.path, number, len(runs), seconds)
        return True

    def _give_up(self, run: ProbeRun, outcome: AnyOutcome) -> None:
        """Make the row of a task that is not started; processes of the same load do not wait for it."""
        if (load := self._loads.get(run.task.key)) is not None:
            self._session.devices.release(run.task.gpus)
            load.leave()
        self._finish(run, not_started(run.task, outcome))

    def _reason_to_skip(self, task: Task) -> str:
        """Return why a task is not started any more; "" if it may be."""
        watch, options = self._session.gpu_watch, self._session.options
        if silence := watch.silence(task.gpus):
            return silence.why
        ongoing = [process.ongoing_call for run in self._runs for process in run.processes]
        slowest = longest([*watch.slow_calls, *(call for call in ongoing if call is not None)])
        waited_s = 0.0 if slowest is None else slowest.seconds or 0.0
        is_left_out = task.gpus and options.level is None and not task.entry.probe.quick
        if slowest is not None and is_left_out and waited_s >= QUICK_FROM_S:
            return f"{slowest.name} takes {waited_s:.0f} s; to run this probe anyway, name it"
        return ""

    def _start(self, run: ProbeRun) -> None:
        """Start a probe if its GPUs can be locked; it is broken if another run has held them for too long."""
        session, task = self._session, run.task
        no_folder = "cannot create a folder for its messages"
        try:
            locked = self._take(task)
        except OSError as error:
            self._finish(run, not_started(task, Broken(NoReading.NOT_STARTED, f"{no_folder}: {shortage(error)}")))
            return
        if not locked:
            if session.devices.waited_s(task.gpus) > session.options.lock_wait_s:
                waited = f"held the GPU for more than {session.options.lock_wait_s:g} s (--lock-wait)"
                broken = Broken(NoReading.TIMEOUT, f"{session.other_run(task.gpus)} {waited}")
                self._finish(run, not_started(task, broken))
            return
        session.observer.started(task.label)
        try:
            run.start(session.jobs, session.options, session.gpu_watch.driver_s, self._loads.get(task.key))
        except OSError as error:
            if task.key not in self._loads:
                session.devices.release(task.gpus)
            self._give_up(run, Broken(NoReading.NOT_STARTED, f"{no_folder}: {shortage(error)}"))

    def _collect(self) -> None:
        """Make the rows of the probes that have ended."""
        session = self._session
        for run in self._runs:
            ended, task = run.state, run.task
            if not isinstance(ended, EndedProbe):
                continue
            session.devices.release(task.gpus)
            row = row_of_run(task, ended, session.began, self._facts, session.options.limits)
            if is_hang(ended.result) and ended.slow_call is None and not session.stopped():
                session.gpu_watch.on_timeout(task.entry.name, task.gpus)
            if ended.result.cause is NoReading.NO_CONTEXT and task.entry.name != CONTEXTS:
                run.postpone(row)
            else:
                self._finish(run, row)

    def _watch(self) -> None:
        """Find the probes that stand still, and give up those on a GPU that hangs."""
        watch, now = self._session.gpu_watch, time.monotonic()
        for run in self._runs:
            task = run.task
            if not task.entry.probe.exclusive:
                for process in run.processes:
                    watch.on_long_run(task.entry.name, task.gpus, now - process.started_at)
            run.look(self._session.jobs, watch)
        for run in self._runs:
            if isinstance(run.state, Running) and (silence := watch.silence(run.task.gpus)) and silence.call:
                run.give_up(self._session.jobs, silence.why)

    def _settle_postponed(self) -> None:
        """Make the rows of probes that got no CUDA context: skipped, if another probe explains why there is none."""
        is_explained = any(
            run.row is not None and run.row.status == "fail" for run in self._runs if run.task.entry.name == CONTEXTS
        )
        skipped = Skipped(f"no CUDA context could be created: {CONTEXTS} says why")
        for run in self._runs:
            if isinstance(run.state, Postponed):
                row = run.state.row
                self._finish(run, msgspec.structs.replace(row, outcome=skipped) if is_explained else row)

    def _explaining_tasks(self) -> list[Task]:
        """Return tasks that were not selected but explain why there is no context, or why the first probe failed."""
        failed = "" if self._is_busy() else self._first_failed()
        selected = {run.task.entry.name for run in self._runs}
        explain = failed and TRACE not in selected
        no_context = any(isinstance(run.state, Postponed) for run in self._runs)
        wanted = DIAGNOSED_BY if explain else (CONTEXTS,) if no_context else ()
        missing = tuple(catalogue.get(name) for name in wanted if name not in selected)
        tasks = [task for task in planned(missing, self._gpus) if self._row_without_child(task) is None]
        if tasks and explain:
            self._session.observer.phase("probes that say why", [task.entry.name for task in tasks])
            self.note = f"{' and '.join(task.entry.name for task in tasks)} ran too, because {failed} failed"
        return tasks

    def _first_failed(self) -> str:
        """Return the first probe whose child failed or broke; "" if none did.

        Probes that judge facts alone do not count, because nothing needs to run to explain them. Neither do probes that
        hang, because explaining them would cost their deadline again.
        """
        for run in self._runs:
            row = run.row
            if row is None:
                continue
            crashed = row.crash is not None and row.crash.cause is not NoReading.TIMEOUT
            if crashed or (row.status == "fail" and row.reading is not None):
                return run.task.label
        return ""
