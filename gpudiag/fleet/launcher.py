"""Runs a user's own program, such as ssh, srun or kubectl: with a deadline, and with a limit for its output."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpudiag.model.fleet import NoReport
from gpudiag.text import one_line

MOST_OUTPUT = 96 << 20
"""The most bytes of standard output: the frame of a report of 64 MiB."""
MOST_ERRORS = 64 << 10
"""The most bytes of standard error that are kept, from its end."""
GRACE_S = 5.0
"""How long a program may take to end after SIGTERM: srun cancels its step then."""


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
    """Why there is no report, if the engine knows it; None: its status and its last lines say so."""

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
) -> Done:
    """Run a program in a session of its own, and return its result.

    ``given`` is its standard input; without it, that is empty. At the deadline, if it writes too much, or if the task
    is cancelled, it gets SIGTERM, and SIGKILL later. Raises nothing of the operating system: a program that cannot be
    started has no status, and ``errors`` says why.
    """
    began = time.monotonic()
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL if given is None else asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environ,
            start_new_session=True,
        )
    except OSError as error:
        reason = f"{argv[0]}: {error.strerror or error}"
        return Done(None, b"", reason, time.monotonic() - began)
    assert process.stdout is not None
    assert process.stderr is not None
    output, errors = bytearray(), bytearray()
    reading = asyncio.gather(
        _read(process.stdout, output, MOST_OUTPUT),
        _read(process.stderr, errors, MOST_ERRORS, keep_end=True),
        _feed(process.stdin, given),
        process.wait(),
    )
    # If this task is cancelled nobody asks for its exception, and asyncio would write a traceback to standard error.
    reading.add_done_callback(lambda future: future.cancelled() or future.exception())
    timed_out = False
    try:
        await asyncio.wait_for(reading, deadline_s)
    except (asyncio.TimeoutError, _FloodError):
        timed_out = True
        await _end(process)
    except BaseException:
        await _end(process)
        raise
    seconds = time.monotonic() - began
    return Done(process.returncode, bytes(output), errors.decode(errors="replace"), seconds, timed_out)


class _FloodError(Exception):
    """A program wrote more than it may."""


async def _read(stream: asyncio.StreamReader, into: bytearray, most: int, *, keep_end: bool = False) -> None:
    while part := await stream.read(1 << 16):
        into += part
        if len(into) > most:
            if not keep_end:
                raise _FloodError
            del into[: len(into) - most]


async def _feed(stream: asyncio.StreamWriter | None, given: bytes | None) -> None:
    if stream is None or given is None:
        return
    with contextlib.suppress(ConnectionError):  # it ended, or did not want all
        stream.write(given)
        await stream.drain()
        stream.close()
        await stream.wait_closed()


async def _end(process: asyncio.subprocess.Process) -> None:
    """End the process and its group: children of a program that ended may hold its output."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        try:
            await asyncio.wait_for(process.wait(), GRACE_S)
        except asyncio.TimeoutError:
            continue
        if number == signal.SIGTERM:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
        return
