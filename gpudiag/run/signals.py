"""Catches signals that end a run, so that its results so far are still reported."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT")
PATIENCE = 3
"""After this many signals the last one is obeyed at once."""


class Signals:
    """Notes SIGINT, SIGTERM, SIGHUP and SIGQUIT inside its ``with`` block; outside the main thread it notes nothing."""

    def __init__(self) -> None:
        self.received: int | None = None
        """The first signal that was received, or None."""
        self._count = 0
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():
            for number in (getattr(signal, name) for name in _NAMES if hasattr(signal, name)):
                if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup sets SIGHUP
                    self._previous[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    @contextmanager
    def waking(self, fd: int) -> Iterator[None]:
        """Write a byte to ``fd`` for every signal inside the block; -1: there is no such file descriptor."""
        if not self._previous or fd < 0:
            yield
            return
        before = signal.set_wakeup_fd(fd, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(before)

    def _note(self, number: int, _: object) -> None:
        self.received = self.received or number
        self._count += 1
        if self._count >= PATIENCE:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
