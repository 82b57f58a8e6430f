"""Expectations of a fleet: what is met, what is refused, and the exit status."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from merged_fleets import failed, merged_fleet, missing, not_verified, passed

from gpudiag.errors import UsageError
from gpudiag.expectations import file as machine
from gpudiag.fleet.expecting import KEYS, FleetExpectations, load
from gpudiag.fleet.sources import Source
from gpudiag.model.fleet import Answer, FleetReport, NoReport
from gpudiag.report.fleet import FORMATS, render


def expected(text: str, folder: Path) -> FleetExpectations:
    file = folder / "expected.toml"
    file.write_text(f"[fleet]\n{text}\n")
    return load(file)


def nodes(passing: int, failing: int = 0, without: int = 0) -> list[Answer]:
    names = iter(range(1, passing + failing + without + 1))
    return [
        *(passed(f"n{next(names)}", driver="550.54") for _ in range(passing)),
        *(failed(f"n{next(names)}", driver="535.10") for _ in range(failing)),
        *(missing(f"n{next(names)}", NoReport.LOST) for _ in range(without)),
    ]


@pytest.mark.parametrize(
    ("text", "is_met"),
    [
        ('pass = ">=98%"', True),
        ('pass = ">98%"', False),
        ('pass = ">=98.1%"', False),
        ('pass = ">=98"', True),
        ("pass = 98", True),
        ("pass = 99", False),
        ('fail = "<=1%"', True),
        ('fail = "<1%"', False),
        ("fail = 0", False),
        ('no-report = "<=1"', True),
        ("no-report = 0", False),
        ('nodes = ">=64,<=100"', True),
        ("nodes = 101", False),
        ("flaky = 0", True),
        ("outliers = 0", True),
        ("worse = 0", False),  # nothing it was compared with
        ('same = ["driver"]', False),
    ],
)
def test_an_expectation_is_met_or_not(text: str, is_met: bool, tmp_path: Path) -> None:
    report = merged_fleet(*nodes(98, 1, 1), expected=expected(text, tmp_path))
    assert (len(report.met), len(report.unmet)) == ((1, 0) if is_met else (0, 1)), report.met + report.unmet
    assert report.exit_code == 1 or is_met


def test_a_share_is_compared_exactly(tmp_path: Path) -> None:
    for text, passing in (('pass = ">=98.1%"', 981), ('pass = "==70.7%"', 707), ('pass = ">99.9%,<100%"', 1999)):
        of = 2000 if passing > 1000 else 1000
        report = merged_fleet(*nodes(passing, of - passing), expected=expected(text, tmp_path))
        assert len(report.met) == 1, report.unmet


@pytest.mark.parametrize(
    ("answers", "text", "options", "status"),
    [
        (nodes(98, 2), 'pass = ">=98%"', {}, 0),  # takes the place of the rule that all must pass
        (nodes(98, 2), 'pass = ">=99%"', {}, 1),
        (nodes(98, 2), 'fail = "<=2"', {}, 0),
        (nodes(98, 2), 'no-report = "<=2"', {}, 1),  # says nothing of those that fail
        (nodes(98, 0, 2), 'pass = ">=98%"', {}, 5),  # nor this of those without a report
        (nodes(98, 0, 2), 'pass = ">=98%"', {"allow_missing": 2}, 0),
        (nodes(98, 0, 2), 'pass = ">=98%"\nno-report = "<=2"', {}, 0),
        (nodes(0, 2), "fail = 2", {}, 5),  # a fleet in which nothing passed
        ([not_verified("n1"), passed("n2")], 'outliers = "<=0"', {}, 5),
        ([not_verified("n1"), passed("n2")], "not-verified = 1", {}, 0),
    ],
)
def test_the_exit_status_by_expectations(
    answers: list[Answer], text: str, options: dict[str, Any], status: int, tmp_path: Path
) -> None:
    assert merged_fleet(*answers, expected=expected(text, tmp_path), **options).exit_code == status


def test_a_share_just_below_a_bound_is_not_shown_as_that_bound(tmp_path: Path) -> None:
    report = merged_fleet(*nodes(9799, 201), expected=expected('pass = ">=98%"', tmp_path))
    assert report.unmet == ("pass: 97.99 % (9,799 of 10,000 nodes), expected >=98%",)


def test_facts_that_differ_are_named_with_the_nodes_that_have_them(tmp_path: Path) -> None:
    wanted = expected('same = ["driver", "kernel", "drivr"]', tmp_path)
    answers = [
        *(passed(f"n{number}", driver="550.54", kernel="6.1") for number in range(1, 8)),
        *(passed(f"n{number}", driver="535.10", kernel="6.1") for number in (8, 9)),
        passed("n10", kernel="6.1"),
        missing("n11", NoReport.LOST),
    ]
    report = merged_fleet(*answers, expected=wanted)
    assert report.met == ("same: kernel is 6.1 on 10",)
    assert report.unmet == (
        "same: driver is 550.54 on 7, 535.10 on 2 (n[8-9]), unknown on 1 (n10)",
        "same: no report has the fact 'drivr'. Did you mean 'driver'?",
    )


def test_nodes_that_got_worse(tmp_path: Path) -> None:
    old = Source([passed("n1"), passed("n2")], ("n1", "n2"), "before")
    wanted = expected("worse = 0", tmp_path)
    report = merged_fleet(passed("n1"), failed("n2"), against=old, expected=wanted)
    assert report.unmet == ("worse: 1, expected 0",)
    report = merged_fleet(passed("n1"), failed("n2"), expected=wanted)
    assert report.unmet == ("worse: not known without --against OLD, expected 0",)


@pytest.mark.parametrize("format_", FORMATS)
def test_every_format_shows_what_is_unmet(format_: str, tmp_path: Path) -> None:
    report = merged_fleet(*nodes(98, 2), expected=expected('pass = ">=99%"\nflaky = 0', tmp_path))
    text = render(report, format_, width=200, color=False)
    if format_ == "prometheus":
        assert "gpudiag_fleet_unmet_expectations 1\n" in text
    elif format_ != "csv":  # which is about each node
        assert "98 % (98 of 100 nodes)" in text
        assert "flaky: 0, expected 0" in text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[fleet]\npas = 1", r"\[fleet\] has an unknown key 'pas'\. Did you mean 'pass'"),
        ("[fleet]\nno_report = 1", "Did you mean 'no-report'"),
        ("[flet]\npass = 1", r"no table \[fleet\].*Is \[flet\] that table"),
        ("gpus = 4", r"has no table \[fleet\]"),
        ("fleet = 3", r"'fleet' must be a table: \[fleet\]; it is 3"),
        ("[fleet]", "expects nothing"),
        ("[fleet]\npass = true", "'pass' must be .*; it is true"),
        ("[fleet]\npass = -1", "'pass' must be .*; it is -1"),
        ("[fleet]\npass = 0.98", "'pass' must be .*; it is 0.98"),
        ('[fleet]\npass = "98%"', "'98%' is not >=, >, ==, <= or < and a number"),
        ('[fleet]\npass = ">=101%"', "no share is above 100%"),
        ('[fleet]\npass = ">=90%,<=80%"', "no number is within these bounds"),
        ('[fleet]\npass = ">90%,<=90%"', "no number is within these bounds"),
        ('[fleet]\nfail = ">2,<3"', "no number is within these bounds"),
        ('[fleet]\nfail = "==2.5"', "no number is within these bounds"),
        ('[fleet]\nfail = "<0"', "no number is below 0"),
        ('[fleet]\noutliers = "<=1%"', "a share of this is not counted"),
        ("[fleet]\nsame = 'driver'", "'same' must be a list of facts"),
        ("[fleet]\nsame = []", "'same' must be a list of facts"),
        ("[fleet]\nsame = [1]", "'same' must be a list of facts"),
        ("[fleet\npass = 1", "not TOML: .*line 1"),
    ],
)
def test_a_wrong_file_is_refused_with_what_to_write(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "expected.toml"
    file.write_text(text)
    with pytest.raises(UsageError, match=message):
        load(file)


def test_each_key_can_be_written_as_its_text_says(tmp_path: Path) -> None:
    for key in KEYS:
        wanted = '">=1%,<=99%"' if key.has_share else '"<=2"'
        assert expected(f"{key.name} = {wanted}", tmp_path).numbers == {key.name: wanted.strip('"')}


def test_one_file_serves_the_machines_and_the_fleet(tmp_path: Path) -> None:
    file = tmp_path / "expected.toml"
    file.write_text("gpus = 8\n[fleet]\npass = 3\n")
    assert load(file).numbers == {"pass": 3}
    of_machine = machine.load(file, named=True)
    assert of_machine is not None
    assert of_machine.gpus == 8
    file.write_text("[fleet]\npass = 3\n")
    with pytest.raises(UsageError, match="expects nothing"):
        machine.load(file, named=True)


@pytest.mark.parametrize(
    ("name", "header"), [("gpudiag.toml", "[expect.fleet]"), ("pyproject.toml", "[tool.gpudiag.expect.fleet]")]
)
def test_a_configuration_file_may_have_the_table(name: str, header: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_text(f"{header}\npass = 3\n")
    assert load(file).numbers == {"pass": 3}
    assert machine.load(file, named=False) is None  # which a check finds by itself


def test_without_expectations_nothing_is_said_of_them() -> None:
    report: FleetReport = merged_fleet(passed("n1"))
    assert (report.expected_by, report.met, report.unmet, report.exit_code) == ("", (), (), 0)
