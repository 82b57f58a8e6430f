"""Annotations for GitHub Actions: problems are shown on the page of the run; the table is folded in its log.

GitHub shows ten errors, ten warnings and ten notices of a step, so the verdict comes first, then the causes. The text
of the table may come from anywhere, so commands of the workflow in it are disabled.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from gpudiag.knowledge.codes import meanings
from gpudiag.model.report import Broken, Finding, Report, Severity
from gpudiag.report import words
from gpudiag.report.formats import table
from gpudiag.text import one_line

SUFFIX = ""
_WIDTH = 120
_OF_SEVERITY = {Severity.FAIL: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}


def render(report: Report, *, verbose: bool, head: bool = False, **_: object) -> str:
    """Return workflow commands, a line each."""
    shown = table.render(report, width=_WIDTH, color=False, verbose=verbose, head=head)
    # Between these two GitHub obeys no command. No text contains the hash of itself.
    word = hashlib.sha256(shown.encode(errors="replace")).hexdigest()
    folded = ("::group::gpudiag", f"::stop-commands::{word}", shown.rstrip("\n"), f"::{word}::", "::endgroup::")
    return "\n".join((*folded, *_annotations(report), ""))


def _annotations(report: Report) -> Iterator[str]:
    level = "notice" if report.exit_code == 0 else "error"  # by which the step fails
    sentences = (words.summary(report), words.headline(report), words.next_step(report), words.simulation(report))
    yield _command(level, f"gpudiag: {words.verdict(report)}", *sentences)
    for cause in report.diagnosis.causes:
        lines = map(str, words.cause(cause)[1:])
        yield _command("error" if words.is_failure(report, cause) else "warning", one_line(cause.cause), *lines)
    for failed in report.diagnosis.failed:
        yield _command("error", f"gpudiag: {failed.part} broke", failed.why)
    for row in report.rows:
        name = words.label(report, row)
        if isinstance(row.outcome, Broken):
            yield _command("error", f"{name} broke", words.figure(row))
        for found in row.findings:
            yield _command(_level(report, found), f"{name}: {found.kind}", found.message, words.advice(found))


def _level(report: Report, found: Finding) -> str:
    return "error" if found.severity in report.limits.failing else _OF_SEVERITY[found.severity]


def _command(level: str, title: str, *lines: str) -> str:
    """Return an annotation in which line breaks, colons and commas are escaped."""
    shown = [text for line in lines if (text := one_line(line))]
    codes = meanings("\n".join((title, *shown)))
    text = "\n".join((*shown, *(f"{code}: {meaning}" for code, meaning in codes.items())))
    property_ = _escaped(one_line(title)).replace(":", "%3A").replace(",", "%2C")
    return f"::{level} title={property_}::{_escaped(text)}"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
