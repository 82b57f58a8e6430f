"""Tracebacks of Python in a log: the error that ended the program, and whose code raised it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gpudiag.record import Record
from gpudiag.text import one_line

_FRAME = re.compile(r'^\s*(?:E\s+)?File "(?P<file>[^"]{1,400})", line \d+|^(?P<short>[/~]\S{1,400}\.py)(?::| in )')
_INSTALLED = re.compile(r"(?:site|dist)-packages[/\\](?P<package>\w{1,100})(?:[/\\.]|$)")
_ERROR = re.compile(r"^(?:E\s{1,9})?(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Warning)\b(?::|$)")
_MOST = 300


class Raised(Record):
    """An error that a traceback ends with."""

    error: str
    """Its type and text, on one line."""
    package: str
    """The package of the innermost frame, of those that pip installs; "" for the program's own file."""
    by_program: bool
    """Whether a frame of the program's own files called it."""


def last_raised(lines: Sequence[str]) -> Raised | None:
    """Return the last error of a log that has a traceback above it; None if there is none."""
    for number in range(len(lines) - 1, -1, -1):
        if not _ERROR.match(lines[number]):
            continue
        files = []
        for before in range(number - 1, -1, -1):
            if lines[before].startswith("Traceback (most recent call last)") or _ERROR.match(lines[before]):
                break
            if frame := _FRAME.match(lines[before]):
                files.append(frame["file"] or frame["short"])
        if files:
            of = [found[-1] if (found := _INSTALLED.findall(file)) else "" for file in files]
            error = one_line(lines[number])
            own = any(not one and "importlib" not in file for one, file in zip(of, files, strict=True))
            return Raised(error=error[:_MOST], package=of[0], by_program=own)
    return None
