"""A command on a terminal, as a user has one: with colours, a width, keys and signals."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import subprocess
import termios

from conftest import DEADLINE_S, Gpudiag


class Session:
    """A command on a terminal of 80 columns and 24 lines."""

    def __init__(self, gpudiag: Gpudiag, *arguments: str, **variables: str) -> None:
        self._ours, its = pty.openpty()
        environment = {name: value for name, value in gpudiag.environment.items() if name not in {"PAGER", "LESS"}}
        self.process = subprocess.Popen(
            gpudiag.command(*arguments),
            env={**environment, "TERM": "xterm", "LINES": "24", "COLUMNS": "80", **variables},
            stdin=its,
            stdout=its,
            stderr=its,
            # A system call alone, which takes no lock that a thread could hold across the fork.
            preexec_fn=lambda: fcntl.ioctl(its, termios.TIOCSCTTY, 0),  # noqa: PLW1509  # see above
            start_new_session=True,
        )
        os.close(its)
        self._unread = b""

    def read(self, until: str = "") -> str:
        """Return what was written up to and with this text, or until the command closed the terminal."""
        while not (until and until.encode() in self._unread) and select.select([self._ours], [], [], DEADLINE_S)[0]:
            try:
                self._unread += os.read(self._ours, 1 << 16)
            except OSError:  # EIO: the other end was closed
                break
        before, found, after = self._unread.partition(until.encode()) if until else (self._unread, b"", b"")
        self._unread = after
        return (before + found).decode(errors="replace").replace("\r\n", "\n")

    def type(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def end(self) -> int:
        """Return the exit status."""
        status = self.process.wait(DEADLINE_S)
        os.close(self._ours)
        return status
