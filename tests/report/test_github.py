"""Annotations of GitHub Actions: every fault is one, and no text can end one or forge another."""

from __future__ import annotations

from urllib.parse import unquote

import pytest
from msgspec.structs import replace

from gpudiag.fix import note, unset
from gpudiag.model.diagnosis import Confidence, Diagnosis, RootCause, Stage
from gpudiag.model.report import Broken, Finding, Limits, NoReading, Report, Severity, World, conclude
from gpudiag.report import render
from reports import passed, report, row, sample

EVIL = "100%, a: b\r\n::error title=forged::x\n::set-output name=a::b"


def read(saved: Report) -> list[tuple[str, str, str]]:
    """Return level, title and text of each annotation, as GitHub reads them: outside of what is stopped."""
    found, until = [], ""
    for line in render(saved, "github", width=80, color=False).splitlines():
        command = line.lstrip()
        if until:
            until = "" if command == f"::{until}::" else until
        elif command.startswith("::stop-commands::"):
            until = command.removeprefix("::stop-commands::")
        elif command.startswith("::") and " title=" in command:
            head, _, text = command[2:].partition("::")
            level, _, title = head.partition(" title=")
            found.append((level, unquote(title), unquote(text)))
        else:
            assert command in ("::group::gpudiag", "::endgroup::")
    assert until == ""
    return found


def finding(severity: Severity, text: str = "too much") -> Finding:
    return Finding("cap_ignored", severity, text, (note("do less"),))


@pytest.mark.parametrize(
    ("severity", "strict", "level"),
    [
        (Severity.FAIL, False, "error"),
        (Severity.WARNING, False, "warning"),
        (Severity.WARNING, True, "error"),
        (Severity.NOTE, True, "notice"),
    ],
)
def test_what_fails_the_run_is_an_error(severity: Severity, strict: bool, level: str) -> None:
    rows = (row("memory.limit", passed("", finding(severity))),)
    found = read(report(*rows, limits=Limits(strict=strict)))
    assert found[1:] == [(level, "memory.limit: cap_ignored", "too much\ndo less")]


def test_the_verdict_is_first_then_the_causes() -> None:
    cause = RootCause(
        "mask_hides_all",
        Stage.DRIVER,
        Confidence.PROVED,
        "a mask, it hides",
        ("A='': b",),
        (unset("A"),),
        "https://a.b",
    )
    broken = row("memory.limit", Broken(NoReading.SIGNAL, "SIGSEGV"))
    found = read(conclude(replace(report(broken), diagnosis=Diagnosis(causes=(cause,)))))
    assert [(level, title) for level, title, _ in found] == [
        ("error", "gpudiag: BROKEN"),
        ("warning", "a mask, it hides"),
        ("error", "memory.limit broke"),
    ]
    assert found[1][2].splitlines() == ["seen: A='': b", "fix: unset A", "see: https://a.b"]


def test_no_text_ends_an_annotation_or_forges_one() -> None:
    rows = (row("memory.limit", passed(EVIL, finding(Severity.FAIL, EVIL))),)
    found = read(conclude(replace(report(*rows), lines=(EVIL,))))
    assert [title for _, title, _ in found] == ["gpudiag: FAIL", "memory.limit: cap_ignored"]
    assert found[1][2] == "100%, a: b ::error title=forged::x ::set-output name=a::b\ndo less"


def test_simulated_gpus_are_named_as_such() -> None:
    assert "SIMULATED GPUs" in read(sample(World(True, "2x16GiB")))[0][2]
