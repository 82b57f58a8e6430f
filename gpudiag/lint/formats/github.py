"""Annotations for GitHub Actions: each finding is shown at its line of the change."""

from __future__ import annotations

from gpudiag.lint.result import Result
from gpudiag.text import one_line

_LEVELS = {"fail": "error", "warning": "warning", "note": "notice"}


def render(result: Result, **_: object) -> str:
    """Return workflow commands, one a line."""
    lines = []
    for finding in result.findings:
        cell = "" if finding.cell is None else f"cell {finding.cell}, line {finding.line}: "
        line = finding.line if finding.cell is None else 1  # of the notebook's own text nobody knows it
        end_line = max(line, finding.end_line if finding.cell is None else 1)
        place = f"file={_property(finding.file)},line={line},endLine={end_line}"
        columns = f",col={finding.column}" if finding.cell is None else ""
        text = f"{cell}{one_line(finding.message)}\n{finding.fix_text}"
        lines.append(
            f"::{_LEVELS[finding.severity.value]} {place}{columns},title={_property(finding.rule)}::{_escaped(text)}"
        )
    lines += [
        f"::warning file={_property(problem.file)},line={problem.line or 1}::{_escaped(problem.message)}"
        for problem in result.problems
    ]
    return "\n".join([*lines, ""])


def _property(text: str) -> str:
    return _escaped(one_line(text)).replace(":", "%3A").replace(",", "%2C")


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
