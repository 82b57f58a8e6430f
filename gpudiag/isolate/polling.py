"""Waits for file descriptors that can be read."""

from __future__ import annotations

import contextlib
import os
import selectors
from collections.abc import Callable

_CHUNK = 1 << 18
_MOST_CHUNKS = 64
"""The most chunks read from a pipe up to its end: a pipe holds no more, unless somebody still writes."""


class Polling:
    """File descriptors, each with a function that is called when it can be read."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()

    def watch(self, fd: int, callback: Callable[[], object]) -> None:
        """Call ``callback`` whenever ``fd`` can be read."""
        self._selector.register(fd, selectors.EVENT_READ, callback)

    def forget(self, fd: int) -> None:
        """Stop watching ``fd``, if it is watched."""
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(fd)

    def close_fd(self, fd: int) -> None:
        """Stop watching ``fd`` and close it."""
        self.forget(fd)
        os.close(fd)

    def wait(self, timeout_s: float) -> list[selectors.SelectorKey]:
        """Return the descriptors that can be read; wait for one, but not longer than ``timeout_s``."""
        return [key for key, _ in self._selector.select(timeout_s)]

    def call(self, ready: list[selectors.SelectorKey]) -> None:
        """Call the functions of readable descriptors."""
        for key in ready:
            if key.fd in self._selector.get_map():  # an earlier function may have closed it
                key.data()

    def close(self) -> None:
        """Close every descriptor that is watched."""
        for fd in [key.fd for key in self._selector.get_map().values()]:
            self.close_fd(fd)
        self._selector.close()


def read(fd: int) -> bytes | None:
    """Return the available bytes: b"" at the end of the stream, None if there are none yet."""
    try:
        return os.read(fd, _CHUNK)
    except BlockingIOError:
        return None


def drain(fd: int, feed: Callable[[bytes], object]) -> None:
    """Pass everything in a pipe to ``feed``."""
    for _ in range(_MOST_CHUNKS):
        if not (chunk := read(fd)):
            return
        feed(chunk)
