"""A probe that stands still: what is noted, and what follows."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import psutil
import pytest

from conftest import Gpudiag
from gpudiag.hardware import waiting
from gpudiag.hardware.waiting import WaitPlace
from gpudiag.isolate import Job, JobResult
from gpudiag.model import codec
from gpudiag.model.report import Judged, NoReading, Skipped, Verdict
from gpudiag.run import standstill
from gpudiag.run.jobs import Jobs
from gpudiag.run.standstill import MOST_MORE_S, ReturnedCall, Standstill


class Children:
    """A job, which is the process of ``cat``; it notes what is asked of it."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.jobs: list[Job] = []
        self.results: list[JobResult] = []
        self.allowed_s = 0.0

    def start(self, job: Job) -> None:
        self.jobs.append(job)

    def wait(self, _: float) -> list[JobResult]:
        results, self.results = self.results, []
        return results

    def pid(self, _: str) -> int:
        return self._pid

    def starved_s(self, _: str) -> float:
        return 0.0

    def allow(self, _: str, seconds: float) -> None:
        self.allowed_s += seconds


class Clock:
    """The time of the module under test: it goes on when the test says so, however busy the machine is."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def cat(monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
    """A process that waits until it is written to, and times that are short."""
    monkeypatch.setattr(standstill, "EVERY_S", 0.0)
    monkeypatch.setattr(standstill, "NAMED_FROM_S", 0.05)
    monkeypatch.setattr(standstill, "time", Clock())
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        wake(process)
        yield process
        process.kill()


def wake(cat: subprocess.Popen[bytes]) -> None:
    """Let ``cat`` copy a line, and wait until it waits again."""
    assert cat.stdin is not None
    assert cat.stdout is not None
    cat.stdin.write(b"x\n")
    cat.stdin.flush()
    assert cat.stdout.readline() == b"x\n"
    while psutil.Process(cat.pid).status() != psutil.STATUS_SLEEPING:
        time.sleep(0.001)


class Watched:
    """A standstill of the job ``a``, which is the process of ``cat``."""

    def __init__(self, cat: subprocess.Popen[bytes], most_more_s: float = MOST_MORE_S) -> None:
        self.children = Children(cat.pid)
        supervision: Any = self.children
        self._jobs = Jobs(supervision)
        self.standstill = Standstill(self._jobs, "a", "plain", most_more_s)

    def look(self, seconds: float = 0.2) -> None:
        for _ in range(round(100 * seconds)):
            vars(standstill)["time"].now += 0.01
            self.standstill.look()

    def answer(self, value: bytes | None, cause: NoReading | None = None) -> None:
        """Let the job that reads the call end."""
        self.children.results = [JobResult(self.children.jobs[-1].key, value, cause, "", "", "", 0.1)]
        self._jobs.poll()


@pytest.mark.parametrize("most_more_s", [MOST_MORE_S, 0.0])
def test_a_process_that_waits_is_looked_at_once_and_gets_time(cat: subprocess.Popen[bytes], most_more_s: float) -> None:
    watched = Watched(cat, most_more_s)
    standstill = watched.standstill
    watched.look()
    (job,) = watched.children.jobs
    assert (job.target, job.argument) == ("gpudiag.hardware.waiting:look", {"pid": cat.pid})
    assert standstill.where is None
    assert (watched.children.allowed_s > 0.05) is bool(most_more_s), "deadlines of the user are kept"
    where = WaitPlace("cudnnCreate", "", f"/proc/{cat.pid}", waiting.woken(f"/proc/{cat.pid}") or 0)
    watched.answer(msgspec.json.encode(where))
    watched.look(0.05)
    named: WaitPlace | None = standstill.where
    assert (named, standstill.seconds > 0.15, standstill.returned_calls()) == (where, True, [])
    wake(cat)
    watched.look(0.1)
    (call,) = standstill.returned_calls()
    assert call == ReturnedCall(where, call.seconds)
    assert call.seconds > 0.15
    assert standstill.returned_calls() == [], "it is said once"


def test_a_thread_that_is_woken_has_returned_though_the_first_one_waits(cat: subprocess.Popen[bytes]) -> None:
    watched = Watched(cat)
    watched.look()
    other = WaitPlace("ncclCommInitRank", "", "/proc/self", 1)
    watched.answer(msgspec.json.encode(other))
    watched.look(0.02)
    assert [call.where for call in watched.standstill.returned_calls()] == [other]
    assert watched.standstill.seconds < 0.15, "the next call begins here"


def test_a_look_that_fails_names_nothing(cat: subprocess.Popen[bytes]) -> None:
    watched = Watched(cat)
    watched.look()
    watched.answer(None, NoReading.TIMEOUT)
    watched.look(0.05)
    assert watched.standstill.where == WaitPlace()


def test_a_look_at_an_earlier_standstill_says_nothing_of_this_one(cat: subprocess.Popen[bytes]) -> None:
    watched = Watched(cat)
    watched.look()
    wake(cat)
    watched.look(0.1)
    watched.answer(msgspec.json.encode(WaitPlace("cuInit")))
    assert watched.standstill.where is None


@pytest.mark.slow
@pytest.mark.parametrize(("seconds", "rule"), [(1000, "library_hangs"), (25, "library_slow_to_start")])
def test_a_library_that_does_not_answer_is_named(gpudiag: Gpudiag, seconds: int, rule: str) -> None:
    fault = f"slow_call=cusolverDnCreate:{seconds}"
    done = gpudiag("check", "libraries.cusolver", *gpudiag.simulated("2", (fault,)), "--format", "json", "-q")
    report = codec.decode(done.stdout, done.stderr)
    (cause,) = report.diagnosis.causes
    assert (cause.cause_id, "cusolverDnCreate" in cause.cause) == (rule, True)
    (row,) = [row for row in report.rows if row.probe == "libraries.cusolver"]
    if seconds == 25:
        assert isinstance(row.outcome, Judged | Skipped)
    else:
        assert [finding.kind for finding in row.findings] == ["operation_hangs"]
        assert report.verdict is Verdict.FAIL
