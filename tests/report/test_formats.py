"""The formats as a whole, and the report of schema version 1 that must always load."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import click
import pytest

from gpudiag.cli.check import check
from gpudiag.errors import UsageError
from gpudiag.model import codec
from gpudiag.report import FORMATS, FRAME, LABEL, format_of, render
from gpudiag.run import rejudging
from reports import sample

FROZEN = Path(__file__).parent.parent / "data" / "report-v1.json"
"""Made once from ``reports.sample()``. Reports like it lie on users' disks: never change it, make it load."""
REPORTS = Path(__file__).parents[2] / "reports"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.txt", "table"),
        ("a.json", "json"),
        ("a.md", "markdown"),
        ("a.xml", "junit"),
        ("a.prom", "prometheus"),
        ("a.html", "html"),
        ("b/A.B.JSON", "json"),
    ],
)
def test_the_suffix_says_the_format(name: str, expected: str) -> None:
    assert format_of(Path(name)) == expected


@pytest.mark.parametrize("name", ["report", "report.docx", "report.json.gz", ".json", "a/b.d/report", ""])
def test_another_suffix_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=r"write \.txt, \.json, \.md, \.xml.* or \.\w+"):
        format_of(Path(name))


@pytest.mark.parametrize("format_", FORMATS)
def test_every_format_ends_in_one_newline(format_: str) -> None:
    text = render(sample(), format_, width=80, color=False)
    assert text.endswith("\n")
    assert not text.endswith("\n\n")


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(ValueError, match="'yaml'"):
        render(sample(), "yaml", width=80, color=False)


def test_the_command_line_offers_these_formats() -> None:
    (option,) = [parameter for parameter in check.params if parameter.name == "format"]
    assert isinstance(option.type, click.Choice)
    assert tuple(option.type.choices) == (*FORMATS, LABEL, FRAME)


def test_json_is_the_report_itself() -> None:
    assert codec.decode(render(sample(), "json", width=20, color=True), "test") == sample()


def test_the_frozen_report_loads() -> None:
    frozen = codec.load(FROZEN)
    assert frozen.schema_version == 2, "upgraded"
    assert frozen.counts == {"pass": 9, "note": 1, "warning": 1, "fail": 1, "broken": 10, "skipped": 8}
    assert frozen.exit_code == 1


def test_the_frozen_report_is_judged_again() -> None:
    """Its readings lack what the probes measure today: then what was judged then stays, and a note says so."""
    frozen = codec.load(FROZEN)
    again = rejudging.rejudge(frozen)
    assert (again.verdict, again.exit_code, again.counts) == (frozen.verdict, frozen.exit_code, frozen.counts)
    (note,) = again.notes
    assert note.startswith("not judged again")
    assert "placement.log" in note
    assert "host." not in note
    assert rejudging.rejudge(again).notes == again.notes


def test_a_reading_of_today_is_judged_again_without_a_note() -> None:
    saved = codec.load(REPORTS / "simulated-2x16GiB.json")
    assert rejudging.rejudge(saved).notes == saved.notes


def test_a_report_on_a_program_that_is_judged_again_keeps_its_exit_status() -> None:
    saved = codec.load(REPORTS / "trace.json")
    again = rejudging.rejudge(saved)
    assert (
        [cause.cause_id for cause in again.diagnosis.causes]
        == [cause.cause_id for cause in saved.diagnosis.causes]
        != []
    )
    assert again.exit_code == saved.exit_code != 5


@pytest.mark.parametrize("format_", FORMATS)
def test_the_frozen_report_renders(format_: str) -> None:
    frozen = codec.load(FROZEN)
    text = render(frozen, format_, width=80, color=False)
    below_areas = format_ in ("summary", "table", "github", "nagios")
    shown = [
        row for row in frozen.rows if format_ not in ("summary", "codequality") or row.status not in ("pass", "skipped")
    ]
    names = {row.probe: row.name if below_areas else row.probe for row in shown}
    assert [probe for probe, name in names.items() if name not in text] == []
    if format_ == "table":
        assert [area for area in frozen.areas if area not in text] == []
    if format_ == "junit":
        assert ET.fromstring(text).get("tests") == "31"
