"""The line for scripts: the verdict, and what is wrong in one word."""

from __future__ import annotations

from pathlib import Path

import fleets
import pytest

from gpudiag.model import codec
from gpudiag.model.report import Report
from gpudiag.report import LABEL, render

REPORTS = Path(__file__).parents[2] / "reports"


def saved(name: str) -> Report:
    return codec.decode((REPORTS / f"{name}.json").read_bytes(), name)


@pytest.mark.parametrize(
    ("report", "line"),
    [
        (fleets.healthy(), "PASS\n"),
        (fleets.unfit(), "FAIL mask_hides_all\n"),
        (saved("diagnosis-library"), "FAIL library_missing\n"),
        (saved("healthy"), "PASS\n"),
    ],
    ids=["healthy", "a cause", "a saved failure", "a saved pass"],
)
def test_a_script_gets_the_verdict_and_its_cause(report: Report, line: str) -> None:
    assert render(report, LABEL, width=80, color=False) == line
