"""Runs a program with a deadline and with limits for its output.

It imports nothing of gpudiag and returns plain values, so that it can travel by value to the workers of Dask.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

MOST_OUTPUT = 96 << 20
"""The most bytes of standard output: the frame of a report of 64 MiB."""
MOST_ERRORS = 64 << 10
"""The most bytes of standard error that are kept, from its end."""
GRACE_S = 5.0
"""How long a program may take to end after SIGTERM: srun cancels its step then."""
TIMED_OUT, FLOODED = "timed out", "flooded"


async def run_program(
    argv: Sequence[str],
    deadline_s: float,
    *,
    environ: Mapping[str, str] | None = None,
    given: bytes | None = None,
    sign: tuple[bytes, float] | None = None,
    prepare: Callable[[], None] | None = None,
) -> tuple[int | None, bytes, str, float, str]:
    """Run a program in a session of its own.

    Returns its status (None if it could not be started), standard output, the end of standard error, the seconds that
    it took, and why it was ended: "", :data:`TIMED_OUT` or :data:`FLOODED`. ``given`` is its standard input; without
    it, that is empty. ``sign`` is what it must write to standard output, and within how many seconds. ``prepare`` is
    called in the new process. What is ended gets SIGTERM, and SIGKILL later; so it does if the task is cancelled.
    """
    began = time.monotonic()
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL if given is None else asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environ,
            start_new_session=True,
            preexec_fn=prepare,
        )
    )
    try:
        process = await asyncio.shield(starting)
    except asyncio.CancelledError:
        # While a process starts, asyncio would kill it alone, and leave its children.
        with contextlib.suppress(OSError, ValueError):
            await _end(await starting)
        raise
    except (OSError, ValueError) as error:  # ValueError: a NUL in an argument
        return None, b"", f"{argv[0]}: {getattr(error, 'strerror', '') or error}", time.monotonic() - began, ""
    output, errors = bytearray(), bytearray()
    signed = asyncio.Event()
    reading = asyncio.gather(
        _read(process.stdout, output, MOST_OUTPUT, (b"" if sign is None else sign[0], signed)),
        _read(process.stderr, errors, MOST_ERRORS),
        _feed(process.stdin, given),
        process.wait(),
    )
    # If this task is cancelled nobody asks for its exception, and asyncio would write a traceback to standard error.
    reading.add_done_callback(lambda future: future.cancelled() or future.exception())
    ended = ""
    try:
        if sign is not None:
            await _first(reading, signed, min(sign[1], deadline_s))
        await asyncio.wait_for(reading, max(deadline_s - (time.monotonic() - began), 0))
    except (asyncio.TimeoutError, _FloodError) as error:
        ended = FLOODED if isinstance(error, _FloodError) else TIMED_OUT
        await _end(process)
    except BaseException:
        await _end(process)
        raise
    finally:
        reading.cancel()
    return process.returncode, bytes(output), errors.decode(errors="replace"), time.monotonic() - began, ended


class _FloodError(Exception):
    """A program wrote more than it may."""


async def _first(reading: asyncio.Future[Any], signed: asyncio.Event, limit_s: float) -> None:
    """Wait for the sign, or for the end; raises :class:`asyncio.TimeoutError`."""
    waiting = asyncio.ensure_future(signed.wait())
    try:
        done, _ = await asyncio.wait({reading, waiting}, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
    if not done:
        raise asyncio.TimeoutError


async def _read(
    stream: asyncio.StreamReader | None, into: bytearray, most: int, sign: tuple[bytes, asyncio.Event] | None = None
) -> None:
    """Read a stream to its end; without a sign that may be in it, keep its end alone."""
    assert stream is not None
    while part := await stream.read(1 << 16):
        into += part
        if sign is not None and into.find(sign[0], max(len(into) - len(part) - len(sign[0]), 0)) >= 0:
            sign[1].set()
        if len(into) > most:
            if sign is not None:
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
