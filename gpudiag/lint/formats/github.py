"""Annotations for GitHub Actions: each finding is shown at its line of the change."""

from __future__ import annotations

from gpudiag.lint.result import Result
from gpudiag.text import one_line

_LEVELS = {"fail": "error", "warning": "warning", "note": "notice"}


def render(result: Result, **_: object) -> str:
    """Return commands of a workflow, a line each."""
    lines = []
    for one in result.findings:
        cell = "" if one.cell is None else f"cell {one.cell}, line {one.line}: "
        line = one.line if one.cell is None else 1  # of the notebook's own text nobody knows it
        place = f"file={_property(one.file)},line={line},endLine={max(line, one.end_line if one.cell is None else 1)}"
        columns = f",col={one.column}" if one.cell is None else ""
        text = f"{cell}{one_line(one.message)}\n{one_line(one.advice)}"
        lines.append(f"::{_LEVELS[one.severity.value]} {place}{columns},title={_property(one.rule)}::{_escaped(text)}")
    lines += [
        f"::warning file={_property(one.file)},line={one.line or 1}::{_escaped(one.message)}" for one in result.problems
    ]
    return "\n".join([*lines, ""])


def _property(text: str) -> str:
    return _escaped(one_line(text)).replace(":", "%3A").replace(",", "%2C")


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
