"""Text for a terminal: a line for each finding, the line of the program, and the fix."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator

from gpudiag.fix import shown
from gpudiag.lint.result import LintFinding, Result
from gpudiag.text import counted, one_line, plain

_COLORS = {"fail": "31", "warning": "33", "note": "36"}
_INDENT = 4
_BELOW = " " * (_INDENT + 6)


def render(result: Result, *, width: int, color: bool, terminal: bool = False) -> str:
    """Return the findings, the parts that were not checked, and a line that counts both.

    The first line of a finding is for programs, too, so it is wrapped only for a ``terminal``.
    """

    def line(text: str) -> str:
        return _filled(text, width) if terminal else text

    blocks = ["\n".join(_finding(finding, width, line, color=color)) for finding in result.findings]
    blocks += [line(plain(f"{problem.place}: {problem.message}")) for problem in result.problems]
    return "\n".join([*blocks, _summary(result)]) + "\n"


def _finding(finding: LintFinding, width: int, line: Callable[[str], str], *, color: bool) -> Iterator[str]:
    head = line(f"{plain(finding.place)}: {finding.rule} {plain(finding.message)}")
    if color:
        at = head.index(finding.rule, len(finding.place))
        colored = f"\x1b[{_COLORS[finding.severity.value]}m{finding.rule}\x1b[0m"
        head = f"{head[:at]}{colored}{head[at + len(finding.rule) :]}"
    yield head
    room = max(width - _INDENT - 6, 20)
    text = one_line(finding.text)
    yield f"{' ' * _INDENT}line  {text if len(text) <= room else text[: room - 3] + '...'}"
    for action in shown(finding.fix):
        first = f"{' ' * _INDENT}{action.heading:<5} {plain(action.text)}"
        yield first if action.action.command else _filled(first, width, _BELOW)
        if action.clause:
            yield _filled(f"{_BELOW}{plain(action.clause)}", width, _BELOW)


def _filled(text: str, width: int, indent: str = "") -> str:
    return textwrap.fill(text, max(width, 40), subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _summary(result: Result) -> str:
    found, files = result.findings, counted(result.files, "file")
    if found:
        places = len({finding.file for finding in found})
        said = f"{counted(len(found), 'finding')} in {places} of {files}"
    else:
        said = f"nothing found in {files}"
    if result.fixed:
        said += f"; {counted(result.fixed, 'finding')} fixed"
    if fixable := sum(finding.fixable for finding in found):
        said += f"; --fix writes {fixable}"
    if result.problems:
        said += f"; {counted(len(result.problems), 'part')} not checked as it should be"
    return f"{said}\n'gpudiag explain RULE' says more of a rule" if found else said
