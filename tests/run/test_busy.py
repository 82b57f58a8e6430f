"""A deadline on a busy machine: time that a process did not get says nothing of a GPU."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from typing import Any

import msgspec
import pytest

from gpudiag.isolate import JobResult
from gpudiag.model.report import Broken, NoReading, Row, conclude
from gpudiag.probe import Raised
from gpudiag.probes.common import in_time
from gpudiag.report import render
from gpudiag.run.gaps import with_gaps
from gpudiag.run.gpu_watch import is_hang
from gpudiag.run.jobs import Jobs
from gpudiag.run.options import Options
from gpudiag.run.session import Session
from gpudiag.run.standstill import MOST_MORE_S, Standstill
from reports import GPUS, passed, report, row

DETAIL = "no result within 60 s, its processes waited 41 of 60 s for a processor"
BUSY = row("libraries.cudnn", Broken(NoReading.BUSY, DETAIL), *GPUS)
VERIFIED = row("libraries.cublas", passed(on=GPUS), *GPUS)


class Children:
    """Jobs of which the kernel says that they were kept from running."""

    wakeup_fd = -1

    def __init__(self, busy: str = "", starved_s: float = 0.0) -> None:
        self._busy, self._starved_s, self.allowed_s = busy, starved_s, 0.0

    def busy(self) -> str:
        return self._busy

    def starved_s(self, _: str) -> float:
        return self._starved_s

    def pid(self, _: str) -> int | None:
        return None

    def allow(self, _: str, seconds: float) -> None:
        self.allowed_s += seconds


class Ctx:
    """A context whose process gets no time at first."""

    def __init__(self, elapsed_s: Callable[[], float]) -> None:
        self._elapsed_s = elapsed_s

    def clock(self) -> Callable[[], float]:
        return self._elapsed_s

    def attempt(self, call: Callable[[], object]) -> Raised | None:
        call()
        return None


def test_it_is_neither_a_hang_nor_a_crash_of_the_probe() -> None:
    assert not is_hang(JobResult("a", None, NoReading.BUSY, DETAIL, "", "", 60.0))
    assert BUSY.crash is None


@pytest.mark.parametrize("format_", ["table", "markdown", "junit", "nagios", "html"])
def test_every_format_says_that_the_machine_was_busy_and_none_passes(format_: str) -> None:
    shown = conclude(with_gaps(report(VERIFIED, BUSY, gpus=GPUS)))
    assert shown.exit_code == 5
    text = " ".join(render(shown, format_, width=200, color=False).split())
    assert "busy" in text
    assert "its processes waited 41 of 60 s for a processor" in text
    assert any(gap.probe == "libraries.cudnn" and DETAIL in gap.why for gap in shown.not_verified or ())


@pytest.mark.parametrize(
    ("busy", "cause", "detail"),
    [
        ("", NoReading.TIMEOUT, "the deadline of 0 s for the run passed"),
        (
            "jobs waited 14 of 20 s for a processor",
            NoReading.BUSY,
            "the machine was busy (jobs waited 14 of 20 s for a processor): the deadline of 0 s for the run passed",
        ),
    ],
)
def test_the_deadline_of_the_run_says_so(busy: str, cause: NoReading, detail: str) -> None:
    signals: Any = msgspec.defstruct("Signals", [("received", int | None, None)])()
    children: Any = Children(busy)
    observer: Any = None
    session = Session(Options((), deadline_s=0.0), children, observer, signals, 0.0)
    assert session.stopped() == (cause, detail)
    children._busy = "something else"
    assert session.stopped() == (cause, detail), "all rows say the same"
    outcome = Broken(cause, f"not run: {detail}")
    assert outcome.by_the_run
    assert Row("a.b", (), outcome, 0.0).crash is None


@pytest.mark.parametrize(("most_more_s", "allowed_s"), [(MOST_MORE_S, 40.0), (0.0, 0.0)])
def test_time_that_a_probe_did_not_get_does_not_count(most_more_s: float, allowed_s: float) -> None:
    children: Any = Children(starved_s=40.0)
    standstill = Standstill(Jobs(children), "a", "plain", most_more_s)
    standstill.look()
    standstill.look()
    assert children.allowed_s == allowed_s
    children._starved_s = 500.0
    standstill.look()
    assert children.allowed_s == most_more_s, "so much at most"


def test_a_call_has_the_time_that_its_process_gets() -> None:
    seconds = iter([0.0, 0.0, 0.0, *[100.0] * 9])
    started, never = Event(), Event()

    def call() -> None:
        started.set()
        never.wait(60)

    ended = in_time(Ctx(lambda: next(seconds)), 0.01, call)  # type: ignore[arg-type]
    never.set()
    assert started.is_set()
    assert ended is not None
    assert ended.type == "TimeoutError"
    assert next(seconds) == 100.0, "it was waited for as long as its process got no time"
    assert in_time(Ctx(lambda: 0.0), 0.01, lambda: Event().wait(0.5)) is None  # type: ignore[arg-type]
