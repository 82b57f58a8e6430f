"""A probe on its GPUs, from the plan to its row.

A probe is ``Waiting`` for room, ``Running`` in one or two processes, perhaps ``Stuck``, then ``Ended``, and at last
``Finished`` with its row. A probe that got no CUDA context is ``Postponed`` until another probe explains why. A method
is a transition, and only this file changes the state.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from gpudiag.folders import Folder
from gpudiag.hardware.waiting import WaitPlace
from gpudiag.isolate import Bounds, Job, JobResult, scratch_folder
from gpudiag.model.facts import SLOW_S, TimedCall
from gpudiag.model.report import NoReading, Row
from gpudiag.probes.comparison import last_announced
from gpudiag.run.gpu_watch import GpuWatch, longest
from gpudiag.run.jobs import Jobs
from gpudiag.run.options import Options
from gpudiag.run.plan import QUICK_FROM_S, Task, environment_of
from gpudiag.run.servers import PLAIN, server_of
from gpudiag.run.standstill import HANG_S, MOST_MORE_S, Standstill

if TYPE_CHECKING:
    from gpudiag.run.load import LoadOrder
    from gpudiag.run.load_watch import LoadWatch

ASK_FROM_S = 8.0
"""If a probe waits this long in a driver call, its GPUs are asked: one of several may hang."""
STARTS_OF_THE_DRIVER = 3
"""The most driver starts in sequence within a probe: its own, and those of its copies."""


@dataclass
class ProbeProcess:
    """A process of a probe."""

    key: str
    """The key of the process's job."""
    started_at: float
    standstill: Standstill
    result: JobResult | None = None
    """The result of the process; None while it runs."""
    ongoing_call: TimedCall | None = None
    """The call in which the process has been waiting for long."""


@dataclass(frozen=True)
class Waiting:
    """State of a probe that was not started."""


@dataclass
class Running:
    """State of a probe whose processes run: the probe first, then its second process if it has one."""

    processes: list[ProbeProcess]
    meeting: Folder | None
    """Where the two processes exchange messages; None if there is only one."""
    slow_call: TimedCall | None = None
    """The slowest of the calls that returned late."""
    failed_peer: JobResult | None = None
    """The second process, if it broke the probe."""
    load: LoadOrder | None = None
    """The order of a probe of level stress."""
    load_watch: LoadWatch | None = None


@dataclass(frozen=True)
class Stuck:
    """State of a probe that is being ended."""

    running: Running
    why: str
    is_own: bool
    """True if one of this probe's calls does not return; False if another probe showed that the GPU hangs."""


@dataclass(frozen=True)
class EndedProbe:
    """State of a probe whose processes have all ended."""

    result: JobResult
    """How the probe itself ended; the output includes that of a second process that broke the probe."""
    slow_call: TimedCall | None
    stuck: Stuck | None
    load: LoadOrder | None = None
    """The order of a probe of level stress, which has its notes."""


@dataclass(frozen=True)
class Postponed:
    """State of a probe that got no CUDA context: its row waits for the probe that explains it."""

    row: Row


@dataclass(frozen=True)
class Finished:
    """State of a probe whose row is in the report."""

    row: Row


State = Waiting | Running | Stuck | EndedProbe | Postponed | Finished


class ProbeRun:
    """A probe on its GPUs, with its current state."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.state: State = Waiting()

    @property
    def row(self) -> Row | None:
        """The probe's row in the report; None while unknown."""
        return self.state.row if isinstance(self.state, Finished) else None

    @property
    def processes(self) -> list[ProbeProcess]:
        """The processes of the probe that run now."""
        running = self._running()
        return [] if running is None else [process for process in running.processes if process.result is None]

    def start(self, jobs: Jobs, options: Options, driver_s: float, load: LoadOrder | None = None) -> None:
        """Start the probe's processes; raises ``OSError`` if the folder for their messages cannot be created.

        ``load`` is the order of a probe of level stress.
        """
        task = self.task
        argument: dict[str, Any] = {"probe": task.entry.name, "gpus": [msgspec.to_builtins(gpu) for gpu in task.gpus]}
        targets = {task.key: "gpudiag.run.worker:run_probe"}
        if load is not None:
            argument["load"] = load.argument
        meeting = None
        if task.entry.peered:
            meeting = scratch_folder()
            argument["meeting"] = str(meeting.path)
            targets[f"{task.key}/peer"] = "gpudiag.run.worker:run_peer"
        server = server_of(task.entry, options.isolation)
        assert server is not None
        most_more_s = MOST_MORE_S if options.timeout_s is None else 0.0  # deadlines that the user has set are kept
        load_watch = None
        if load is not None:
            from gpudiag.run.load_watch import LoadWatch

            load_watch = LoadWatch(load, time.monotonic())
        self.state = Running([], meeting, load=load, load_watch=load_watch)
        for key, target in targets.items():
            process = ProbeProcess(key, time.monotonic(), Standstill(jobs, key, PLAIN, most_more_s))
            self.state.processes.append(process)
            job = Job(
                key=key,
                target=target,
                argument=argument,
                deadline_s=_deadline_s(task, server, options, driver_s),
                server=server,
                fresh=server == PLAIN,
                env=environment_of(task),
                may_wait=not task.entry.peered,
            )
            jobs.start(job, partial(self._on_result, jobs, process))

    def look(self, jobs: Jobs, watch: GpuWatch) -> None:
        """Check in which calls the processes wait; the probe is stuck if one of the calls does not return."""
        for process in self.processes:
            process.standstill.look()
        if isinstance(self.state, Running) and (load := self.state.load_watch) is not None:
            self._look_at_load(load, jobs)
        for process in self.processes:
            self._record_slow_calls(process, jobs, watch)
            process.ongoing_call = None
            standstill = process.standstill
            if not isinstance(self.state, Running) or standstill.where is None or not standstill.seconds:
                continue
            call = self._call(process, standstill.where, jobs)
            may_be_asked = not self.task.entry.probe.exclusive
            if standstill.seconds >= HANG_S + 2 * watch.driver_s and not watch.is_asked(self.task.gpus):
                hung = msgspec.structs.replace(call, seconds=None, waited_s=round(standstill.seconds, 1))
                self.state = Stuck(self.state, watch.give_up(hung, self.task.gpus), is_own=True)
                jobs.children.kill(process.key, NoReading.TIMEOUT, self.state.why)
            elif standstill.seconds >= ASK_FROM_S and call.of_driver and may_be_asked:
                watch.suspect(self.task.entry.name, self.task.gpus)
            if call.name and standstill.seconds >= QUICK_FROM_S:
                process.ongoing_call = msgspec.structs.replace(call, seconds=round(standstill.seconds, 1))

    def _look_at_load(self, load: LoadWatch, jobs: Jobs) -> None:
        """Give a probe of level stress its time from when all GPUs are ready, and end it if its GPU hangs."""
        more_s = load.look(time.monotonic())
        for process in self.processes:
            if more_s:
                jobs.children.allow(process.key, more_s)
            if silent_s := load.hang_s():
                work = last_announced(jobs.children.said(process.key).splitlines()) or "the work"
                why = f"{work} has not returned for {silent_s:.0f} s"
                jobs.children.kill(process.key, NoReading.TIMEOUT, why)

    def give_up(self, jobs: Jobs, why: str) -> None:
        """End the probe, because another probe showed that its GPU hangs."""
        if isinstance(self.state, Running):
            for process in self.processes:
                jobs.children.kill(process.key, NoReading.TIMEOUT, why)
            self.state = Stuck(self.state, why, is_own=False)

    def postpone(self, row: Row) -> None:
        """Keep the row until it is known why there is no CUDA context."""
        self.state = Postponed(row)

    def finish(self, row: Row) -> None:
        """Set the probe's row."""
        self.state = Finished(row)

    def close(self) -> None:
        """Remove the folder in which the processes exchanged messages."""
        running = self._running()
        if running is not None and running.meeting is not None:
            running.meeting.close()

    def _running(self) -> Running | None:
        if isinstance(self.state, Stuck):
            return self.state.running
        return self.state if isinstance(self.state, Running) else None

    def _on_result(self, jobs: Jobs, process: ProbeProcess, result: JobResult) -> None:
        """Record how a process ended, and end the other one; after the last process the probe has ended."""
        running = self._running()
        assert running is not None
        process.result = result
        probe = running.processes[0]
        for other in self.processes:
            if other is not probe:
                jobs.children.kill(other.key, NoReading.INTERRUPTED, "the probe has ended")
            elif result.cause is not None:
                running.failed_peer = result
                jobs.children.kill(other.key, result.cause, f"its second process: {result.detail}")
        if self.processes or probe.result is None:
            return
        self.close()
        ending = probe.result
        if peer := running.failed_peer:  # its last words say why
            ending = replace(ending, stdout=ending.stdout + peer.stdout, stderr=ending.stderr + peer.stderr)
        stuck = self.state if isinstance(self.state, Stuck) else None
        self.state = EndedProbe(ending, running.slow_call, stuck, running.load)
        if running.load is not None:
            running.load.leave()

    def _record_slow_calls(self, process: ProbeProcess, jobs: Jobs, watch: GpuWatch) -> None:
        running = self._running()
        assert running is not None
        for returned in process.standstill.returned_calls():
            if returned.seconds >= SLOW_S and (call := self._call(process, returned.where, jobs)).name:
                call = msgspec.structs.replace(call, seconds=round(returned.seconds, 1))
                watch.record_slow_call(call)
                running.slow_call = longest(
                    slow_call for slow_call in (running.slow_call, call) if slow_call is not None
                )

    def _call(self, process: ProbeProcess, where: WaitPlace, jobs: Jobs) -> TimedCall:
        """Return the call in which a process waits, and the GPU of that call if known."""
        gpus = self.task.gpus
        number = last_announced(jobs.children.said(process.key).splitlines()).rpartition("GPU:")[2]
        meant = gpus[int(number) :][:1] if number.isdigit() else gpus if len(gpus) == 1 else ()
        uuid = meant[0].uuid if meant else ""
        return TimedCall(where.call or where.file, None, uuid, probe=self.task.entry.name, file=where.file)


def _deadline_s(task: Task, server: str, options: Options, driver_s: float) -> float:
    allowed_s = options.timeout_s or task.entry.probe.deadline_s + STARTS_OF_THE_DRIVER * driver_s
    if server == PLAIN:  # its child imports TensorFlow itself
        allowed_s += options.timeout_s or Bounds().preload_s
    return allowed_s
