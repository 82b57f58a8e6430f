"""The line for scripts: the verdict, and what is wrong in one word."""

from __future__ import annotations

from pathlib import Path

import fleets
import pytest

from gpudiag.fleet.summary import summarized
from gpudiag.model import codec
from gpudiag.model.report import Broken, Finding, NoReading, Report, Severity
from gpudiag.report import LABEL, render
from reports import passed, row
from reports import report as made

REPORTS = Path(__file__).parents[2] / "reports"


def saved(name: str) -> Report:
    return codec.decode((REPORTS / f"{name}.json").read_bytes(), name)


LATE = Broken(NoReading.TIMEOUT, "the deadline of 60 s for the run passed")
KILLED = Broken(NoReading.SIGNAL, "SIGSEGV")
FAILED = passed("", Finding("wrong", Severity.FAIL, "the result is wrong"))


@pytest.mark.parametrize(
    ("report", "line"),
    [
        (fleets.healthy(), "PASS\n"),
        (fleets.unfit(), "FAIL mask_hides_all\n"),
        (saved("diagnosis-library"), "FAIL library_missing\n"),
        (saved("healthy"), "PASS\n"),
        (made(row("a.b", LATE), row("c.d", KILLED)), "BROKEN c.d.broken\n"),
        (made(row("a.b", LATE), row("c.d", FAILED)), "FAIL c.d.wrong\n"),
        (made(row("a.b", LATE), row("c.d", LATE)), "BROKEN timed_out\n"),
    ],
    ids=["healthy", "a cause", "a saved failure", "a saved pass", "a crash", "a finding", "the deadline"],
)
def test_a_script_gets_the_verdict_and_its_cause(report: Report, line: str) -> None:
    assert render(report, LABEL, width=80, color=False) == line


def test_a_fleet_has_one_name_and_one_sentence_for_what_the_deadline_ended() -> None:
    summary = summarized(made(row("a.b", LATE), row("c.d", passed()), row("e.f", LATE)))
    assert summary.findings == ("timed_out",)
    assert summary.headline == "the deadline of 60 s for the run passed, 2 of 3 probes have no result"
