"""Runs a user's own program, such as ssh, srun or kubectl: with a deadline, and with a limit for its output."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpudiag.fleet.process import FLOODED, MOST_OUTPUT, TIMED_OUT, run_program
from gpudiag.isolate.linux import die_with_parent
from gpudiag.model.fleet import NoReport
from gpudiag.text import one_line


@dataclass(frozen=True)
class Done:
    """A program that ended, or was ended."""

    status: int | None
    """Its exit status, -N after signal N; None if it could not be started."""
    output: bytes
    errors: str
    """The end of its standard error."""
    seconds: float
    timed_out: bool = False
    reason: NoReport | None = None
    """Why there is no report, where the engine knows it; tried before its rules."""

    @classmethod
    def of(cls, status: int | None, output: bytes, errors: str, seconds: float, ended: str) -> Done:
        """Return what :func:`gpudiag.fleet.process.run_program` returned."""
        if ended == FLOODED:
            errors += f"\nit was ended, because it wrote more than {MOST_OUTPUT >> 20} MiB"
        reason = NoReport.NOT_A_REPORT if ended == FLOODED else None
        return cls(status, output, errors, seconds, ended == TIMED_OUT, reason)

    @property
    def first_error(self) -> str:
        """The first line on standard error: it has the reason if a program prints its usage after an error."""
        return next(filter(None, map(one_line, self.errors.splitlines())), self.last_line)[:500]

    @property
    def last_line(self) -> str:
        """The last line that it wrote to standard error, or else to standard output."""
        for text in (self.errors, self.output[-4096:].decode(errors="replace")):
            lines = [line for line in map(one_line, text.splitlines()) if line]
            if lines:
                return lines[-1][:500]
        return ""


async def launch(
    argv: Sequence[str],
    deadline_s: float,
    *,
    environ: Mapping[str, str] | None = None,
    given: bytes | None = None,
    sign: tuple[bytes, float] | None = None,
) -> Done:
    """Run a program in a session of its own, and return its result.

    ``given`` is its standard input; without it, that is empty. ``sign`` is what it must write to standard output, and
    within how many seconds. At the deadline, without the sign, if it writes too much, or if the task is cancelled, it
    gets SIGTERM, and SIGKILL later; SIGTERM also when this process dies. Raises nothing of the operating system: a
    program that cannot be started has no status, and ``errors`` says why.
    """
    prepare = functools.partial(_tie_to, os.getpid())
    return Done.of(*await run_program(argv, deadline_s, environ=environ, given=given, sign=sign, prepare=prepare))


def _tie_to(parent: int) -> None:
    """Make the kernel end this process when its parent is killed, so that ``--resume`` does not meet it.

    Only Linux can; a collector may be another system.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            die_with_parent(parent, signal.SIGTERM)
