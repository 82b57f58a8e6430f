"""The lines at which a program ended, as the rules of `gpudiag lint` explain them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from gpudiag.model.program import FailedLine

_FRAME = re.compile(r'  File "(?P<file>[^"]+\.py)", line (?P<line>\d+), in ')
_ERROR = re.compile(r"(?:\w+\.)*(?P<name>\w+)(?::|$)")
_OF_PACKAGES = {"site-packages", "dist-packages"}
_MOST_FILES = 4


def read(traceback: Sequence[str]) -> tuple[FailedLine, ...]:
    """Return what lint says of the program's own lines in a ``traceback``, the innermost first.

    Only rules that say that a line raises this exception are asked: others may be right about the line, too, and not
    explain why the program ended there.
    """
    from gpudiag.lint import check, rule  # most programs end well

    error = next((found["name"] for line in reversed(traceback) if (found := _ERROR.match(line))), "")
    rules = [known for known in rule.known() if error in known.declared.raises]
    frames = [(Path(found["file"]), int(found["line"])) for line in traceback if (found := _FRAME.match(line))]
    own = [frame for frame in reversed(frames) if _OF_PACKAGES.isdisjoint(frame[0].parts) and frame[0].is_file()]
    files = tuple(dict.fromkeys(file for file, _ in own))[:_MOST_FILES] if rules else ()
    findings = check.check(files, rules).result().findings if files else ()
    return tuple(
        FailedLine(f"{file}:{number}", finding.text, finding.rule, finding.message, finding.fix)
        for file, number in own
        for finding in findings
        if finding.file == str(file) and finding.line <= number <= finding.end_line
    )
