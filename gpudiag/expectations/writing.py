"""Writes the expectations that a good machine meets, with a comment for each, as a draft to edit by hand."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from gpudiag.errors import UsageError
from gpudiag.expectations.keys import KEYS
from gpudiag.model.expectations import AREA
from gpudiag.model.report import Report, Severity, Verdict
from gpudiag.report import words
from gpudiag.text import one_line

_WIDTH = 100


def from_report(report: Report, source: str) -> str:
    """Return the file, TOML with a final newline.

    Raises :class:`UsageError` for a report without PASS, because the faults of its machine would be expected.
    """
    if report.program is not None or report.is_log_alone:
        raise UsageError(
            f"{source}: is about a program, not about a machine. Save a report by: gpudiag check -o report.json"
        )
    if report.verdict is not Verdict.PASS:
        raise UsageError(
            f"{source}: the verdict is {report.verdict.value}. Expectations are written from a machine with PASS: fix "
            f"what the report names (gpudiag show {source}), then run gpudiag check -o report.json again."
        )
    return "\n".join([*_head(report), *_keys(report), *_waivers(report), ""])


def _head(report: Report) -> Iterator[str]:
    yield f"# What a machine is expected to be, written from a report of {words.started(report)}."
    yield "# Loosen what may differ, and remove what does not matter. All keys: gpudiag docs expectations"
    if simulation := words.simulation(report):
        yield from _comment(f"{simulation}.")


def _keys(report: Report) -> Iterator[str]:
    for key in (key for key in KEYS if not key.not_judged(report)):
        value = key.written(report)
        yield ""
        yield from _comment(f"{key.what[0].upper()}{key.what[1:]}.")
        yield f"{key.name} = {value}" if value else f"# {key.name}: not known to the report"


def _waivers(report: Report) -> Iterator[str]:
    """Yield, as comments, waivers that would accept the warnings of this machine."""
    warned = {
        f"{row.probe}.{finding.kind}": finding
        for row in report.rows
        if row.area != AREA
        for finding in row.findings
        if finding.severity is Severity.WARNING
    }
    yield ""
    yield from _comment("Findings that are accepted, each with a reason and the last day on which it is.")
    if not warned:
        yield from _comment("This machine has none to accept: no warning was found.")
    for name, finding in warned.items():
        yield from _comment(finding.message)
        yield from ("# [[accept]]", f'# finding = "{name}"', '# reason = ""', "# until = 2000-01-01")


def _comment(text: str) -> list[str]:
    return textwrap.wrap(
        " ".join(one_line(text).split()),
        _WIDTH,
        initial_indent="# ",
        subsequent_indent="# ",
        break_long_words=False,
        break_on_hyphens=False,
    )
