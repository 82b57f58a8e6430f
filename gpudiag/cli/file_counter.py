"""Shows on a terminal how far `gpudiag lint` is."""

from __future__ import annotations

import contextlib
import math
import os
import sys
import time


class FileCounter:
    """How many files were looked at: one line on a terminal, from the second second on, removed in the end."""

    _AFTER_S, _EVERY_S = 1.0, 0.1

    def __init__(self) -> None:
        is_terminal = sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._next = time.monotonic() + self._AFTER_S if is_terminal else math.inf
        self._is_shown = False

    def __enter__(self) -> FileCounter:
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_shown:
            self._draw("")

    def show(self, done: int, total: int) -> None:
        """Show how many files were checked, or read as long as nobody knows how many to check (``total`` is 0)."""
        now = time.monotonic()
        if now >= self._next:
            self._next, self._is_shown = now + self._EVERY_S, True
            self._draw(f"checking: {done}/{total} files" if total else f"reading: {done} files")

    def _draw(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # a lost terminal must not end the run
            sys.stderr.write(f"\r\x1b[2K{text}")
            sys.stderr.flush()
