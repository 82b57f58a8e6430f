"""The code quality report of GitLab, and the summary of a step of GitHub Actions."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from gpudiag.cli import delivery
from gpudiag.fix import note
from gpudiag.model.report import Finding, Limits, Report, Severity
from gpudiag.report import render
from reports import CAP_IGNORED, GPUS, MISSPELT, hostile, passed, report, row, sample


def issues(of: Report) -> list[dict[str, Any]]:
    text = render(of, "codequality", width=80, color=False)
    assert text.isascii()
    found: list[dict[str, Any]] = json.loads(text)
    return found


def test_a_pass_has_no_issue() -> None:
    assert issues(report(row("memory.growth", passed(on=GPUS)), gpus=GPUS)) == []


def test_what_was_left_out_is_said_after_a_pass_too() -> None:
    (issue,) = issues(replace(report(row("memory.growth", passed(on=GPUS)), gpus=GPUS), skip=("xla", "libraries.*")))
    assert (issue["check_name"], issue["severity"]) == ("verdict", "info")
    assert "left out by --skip: xla, libraries.*" in issue["description"]


def test_each_thing_that_was_found_is_one_the_verdict_first() -> None:
    found = issues(sample())
    assert (found[0]["check_name"], found[0]["severity"]) == ("verdict", "blocker")
    by_name = {issue["check_name"]: issue["severity"] for issue in found}
    assert by_name["memory.fraction.cap_ignored"] == "critical"
    assert by_name["host.environment.misspelt"] == "minor"
    assert by_name["host.environment.overridden"] == "info"
    assert by_name["visibility.list_invalid"] == "major"


def test_what_fails_a_strict_run_is_critical() -> None:
    found = issues(report(row("host.environment", passed("", MISSPELT)), limits=Limits(strict=True)))
    assert found[-1]["severity"] == "critical"


def test_a_fingerprint_is_of_what_was_found_and_not_of_what_was_measured() -> None:
    def fingerprints(message: str, *devices: int) -> list[str]:
        found = Finding("cap_ignored", Severity.FAIL, message, (note("do"),))
        rows = [row("memory.fraction", passed("", found), GPUS[device]) for device in devices]
        return [issue["fingerprint"] for issue in issues(report(*rows, gpus=GPUS))[1:]]

    first = fingerprints("took 2048 MiB", 0)
    assert first == fingerprints("took 2049 MiB", 0)
    assert first != fingerprints("took 2048 MiB", 1)
    twice = report(row("memory.fraction", passed("", CAP_IGNORED, CAP_IGNORED, CAP_IGNORED)))
    assert len({issue["fingerprint"] for issue in issues(twice)}) == 4


def test_hostile_texts_are_texts() -> None:
    for issue in issues(hostile()):
        assert "\x1b" not in issue["description"]
        assert "\n" not in issue["description"]


def test_the_summary_is_added_to_and_of_a_size_that_is_shown(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "summary.md"
    monkeypatch.setenv(delivery.SUMMARY, str(file))
    file.write_text("before\n")
    delivery.summarize(sample(), mask=True)
    assert file.read_text().startswith("before\n# gpudiag: FAIL\n")
    file.write_text("")
    long = Finding("long", Severity.FAIL, "word " * 400_000, (note("do"),))
    delivery.summarize(report(row("memory.fraction", passed("", long), GPUS[0]), gpus=GPUS), mask=False)
    assert len(file.read_bytes()) < 1 << 20
    assert file.read_text().endswith("a summary has at most 1 MiB.\n")


def test_a_summary_that_cannot_be_written_is_a_note(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(delivery.SUMMARY, str(tmp_path / "gone" / "summary.md"))
    delivery.summarize(sample(), mask=False)
    assert "note: GITHUB_STEP_SUMMARY=" in capsys.readouterr().err
    monkeypatch.delenv(delivery.SUMMARY)
    delivery.summarize(sample(), mask=False)
    assert capsys.readouterr().err == ""
