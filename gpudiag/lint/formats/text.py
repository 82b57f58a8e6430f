"""Text for a terminal: a line for each finding, the line of the program, and what to write instead."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from gpudiag.lint.result import Finding, Result
from gpudiag.text import counted, one_line, plain

_COLORS = {"fail": "31", "warning": "33", "note": "36"}
_INDENT = 4


def render(result: Result, *, width: int, color: bool) -> str:
    """Return the findings, what was not checked, and a line that counts both."""
    blocks = ["\n".join(_finding(one, width, color=color)) for one in result.findings]
    blocks += [plain(f"{one.place}: {one.message}") for one in result.problems]
    return "\n".join([*blocks, _summary(result)]) + "\n"


def _finding(finding: Finding, width: int, *, color: bool) -> Iterator[str]:
    rule = finding.rule
    if color:
        rule = f"\x1b[{_COLORS[finding.severity.value]}m{rule}\x1b[0m"
    yield f"{plain(finding.place)}: {rule} {plain(finding.message)}"
    room = max(width - _INDENT - 6, 20)
    text = one_line(finding.text)
    yield f"{' ' * _INDENT}line  {text if len(text) <= room else text[: room - 3] + '...'}"
    yield textwrap.fill(
        plain(finding.advice),
        max(width, 40),
        initial_indent=f"{' ' * _INDENT}do    ",
        subsequent_indent=" " * (_INDENT + 6),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _summary(result: Result) -> str:
    found, files = result.findings, counted(result.files, "file")
    if found:
        places = len({one.file for one in found})
        said = f"{counted(len(found), 'finding')} in {places} of {files}"
    else:
        said = f"nothing found in {files}"
    if result.fixed:
        said += f"; {counted(result.fixed, 'finding')} fixed"
    if fixable := sum(one.fixable for one in found):
        said += f"; --fix writes {fixable}"
    if result.problems:
        said += f"; {counted(len(result.problems), 'part')} not checked as it should be"
    return f"{said}\n'gpudiag explain RULE' says more of a rule" if found else said
