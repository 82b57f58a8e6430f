"""The states of a probe, from the plan to its row: what ends, what is ended for it, and what is kept of it."""

from __future__ import annotations

from typing import Any

import pytest

from gpudiag import catalogue
from gpudiag.hardware.waiting import WaitPlace
from gpudiag.isolate import Job, JobResult
from gpudiag.model.report import NoReading, Skipped
from gpudiag.run.gpu_watch import GpuWatch
from gpudiag.run.jobs import Jobs
from gpudiag.run.options import Options
from gpudiag.run.plan import Task
from gpudiag.run.probe_run import EndedProbe, Finished, Postponed, ProbeRun, Running, Stuck, Waiting
from gpudiag.run.rows import not_started
from gpudiag.run.standstill import HANG_S, ReturnedCall
from reports import GPUS

PROBE, PEER = "memory.shared_gpu#0", "memory.shared_gpu#0/peer"


class Children:
    """Jobs that nobody runs: a test says how they end."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.killed: list[tuple[str, NoReading, str]] = []
        self.results: list[JobResult] = []

    def start(self, job: Job) -> None:
        self.started.append(job.key)

    def kill(self, key: str, cause: NoReading, detail: str) -> None:
        self.killed.append((key, cause, detail))

    def wait(self, _: float) -> list[JobResult]:
        results, self.results = self.results, []
        return results

    def said(self, _: str) -> str:
        return "gpudiag computes: product on GPU:0\n"

    def pid(self, _: str) -> None:
        return None

    def starved_s(self, _: str) -> float:
        return 0.0


class Started:
    """A probe whose processes were started."""

    def __init__(self, name: str = "memory.shared_gpu") -> None:
        self.children = Children()
        supervision: Any = self.children
        self.jobs = Jobs(supervision)
        self.watch = GpuWatch(self.jobs, "plain", None)
        self.run = ProbeRun(Task(f"{name}#0", catalogue.get(name), GPUS[:1]))
        assert isinstance(self.run.state, Waiting)
        self.run.start(self.jobs, Options(()), 0.0)

    def end(self, key: str, cause: NoReading | None = None, stderr: str = "") -> None:
        value = b"{}" if cause is None else None
        self.children.results = [JobResult(key, value, cause, f"detail of {key}", "", stderr, 1.0)]
        self.jobs.poll()

    def stand_still(self, seconds: float, call: str) -> None:
        (process, *_) = self.run.processes
        process.standstill.where, process.standstill.seconds = WaitPlace(call), seconds
        self.run.look(self.jobs, self.watch)

    @property
    def ended(self) -> EndedProbe:
        assert isinstance(self.run.state, EndedProbe)
        return self.run.state


def test_a_probe_with_one_process_ends_with_it() -> None:
    started = Started("memory.growth")
    assert started.children.started == ["memory.growth#0"]
    assert [process.key for process in started.run.processes] == ["memory.growth#0"]
    started.end("memory.growth#0")
    assert (started.ended.result.cause, started.ended.stuck, started.ended.slow_call) == (None, None, None)
    assert started.run.processes == []


def test_a_second_process_is_ended_when_the_probe_has_ended_and_waited_for() -> None:
    started = Started()
    assert started.children.started == [PROBE, PEER]
    state = started.run.state
    assert isinstance(state, Running)
    assert state.meeting is not None
    folder = state.meeting.path
    started.end(PROBE)
    assert isinstance(started.run.state, Running)
    assert started.children.killed == [(PEER, NoReading.INTERRUPTED, "the probe has ended")]
    assert folder.exists()
    started.end(PEER, NoReading.INTERRUPTED, stderr="last words")
    assert (started.ended.result.key, started.ended.result.stderr) == (PROBE, "")
    assert not folder.exists()


def test_a_second_process_that_breaks_ends_the_probe_and_its_last_words_are_kept() -> None:
    started = Started()
    started.end(PEER, NoReading.SIGNAL, stderr="last words")
    assert started.children.killed == [(PROBE, NoReading.SIGNAL, f"its second process: detail of {PEER}")]
    started.end(PROBE, NoReading.SIGNAL, stderr="own words, ")
    assert started.ended.result.stderr == "own words, last words"


def test_a_second_process_that_is_done_first_ends_nothing() -> None:
    started = Started()
    started.end(PEER)
    assert isinstance(started.run.state, Running)
    assert started.children.killed == []


def test_a_probe_in_a_call_that_does_not_return_is_stuck_and_so_are_its_gpus() -> None:
    started = Started()
    started.stand_still(HANG_S - 1, "cudnnCreate")
    assert isinstance(started.run.state, Running)
    (call,) = [process.ongoing_call for process in started.run.processes if process.ongoing_call is not None]
    assert (call.name, call.gpu, call.probe) == ("cudnnCreate", GPUS[0].uuid, "memory.shared_gpu")
    started.stand_still(HANG_S, "cudnnCreate")
    state = started.run.state
    assert isinstance(state, Stuck)
    assert (state.is_own, state.why) == (True, "cudnnCreate did not return within 35 s")
    assert started.children.killed == [(PROBE, NoReading.TIMEOUT, state.why)]
    assert started.watch.silence(GPUS[:1]) is not None
    started.run.give_up(started.jobs, "another probe hangs")
    assert started.run.state is state, "its own reason stays"
    started.end(PROBE, NoReading.TIMEOUT)
    started.end(PEER, NoReading.INTERRUPTED)
    assert started.ended.stuck is state


def test_a_probe_on_a_gpu_that_hangs_is_given_up_with_all_its_processes() -> None:
    started = Started()
    started.run.give_up(started.jobs, "GPU 0 hangs")
    assert started.children.killed == [(key, NoReading.TIMEOUT, "GPU 0 hangs") for key in (PROBE, PEER)]
    started.end(PEER, NoReading.TIMEOUT)
    started.end(PROBE, NoReading.TIMEOUT)
    stuck = started.ended.stuck
    assert stuck is not None
    assert (stuck.is_own, stuck.why) == (False, "GPU 0 hangs")


@pytest.mark.parametrize(("seconds", "is_noted"), [(0.5, False), (12.0, True)])
def test_the_slowest_call_that_returned_is_kept(seconds: float, is_noted: bool) -> None:
    started = Started("memory.growth")
    (process,) = started.run.processes
    for where, took_s in ((WaitPlace("cuInit"), seconds), (WaitPlace("cuCtxCreate"), seconds / 2)):
        process.standstill._returned.append(ReturnedCall(where, took_s))
    started.run.look(started.jobs, started.watch)
    started.end("memory.growth#0", NoReading.TIMEOUT)
    slow = started.ended.slow_call
    assert (slow is not None and (slow.name, slow.seconds) == ("cuInit", 12.0)) is is_noted


def test_a_postponed_row_is_not_in_the_report_until_it_is_finished() -> None:
    started = Started("memory.growth")
    row = not_started(started.run.task, Skipped("no context"))
    started.end("memory.growth#0", NoReading.NO_CONTEXT)
    started.run.postpone(row)
    assert isinstance(started.run.state, Postponed)
    assert started.run.row is None
    started.run.finish(row)
    assert isinstance(started.run.state, Finished)
    assert started.run.row is row
