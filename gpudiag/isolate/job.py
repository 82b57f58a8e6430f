"""The order that a supervisor gets, and the result that it returns."""

from __future__ import annotations

import contextlib
import signal
import tempfile
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from gpudiag.folders import Folder
from gpudiag.isolate.protocol import LENGTH_BYTES, JobRecord
from gpudiag.model.report import NoReading


@dataclass(frozen=True)
class ServerSpec:
    """A kind of server: what its interpreter imports before the first fork, and its environment."""

    preload: str | None = None
    """``module:function``, called once; it may return a guard, see :mod:`gpudiag.isolate.server`."""
    what: str = "starting Python"
    """The preload in words, for messages: ``import tensorflow``."""
    env: Mapping[str, str | None] = field(default_factory=dict)
    """Variables to set, or with None to clear, on top of the caller's environment."""
    ahead: str | None = None
    """``module:function``, called once after the preload for work that each job would repeat; a job sees an
    exception that it raises."""


@dataclass(frozen=True)
class Job:
    """One call of a function in a child process."""

    key: str
    target: str
    """``module:function``; called with ``argument``, returns JSON as bytes."""
    argument: dict[str, Any]
    deadline_s: float
    server: str
    """Name of the server that forks the child."""
    fresh: bool = False
    """True to use a new interpreter instead of a fork of the server."""
    env: Mapping[str, str | None] = field(default_factory=dict)
    """Variables to set, or with None to clear, on top of the server's environment."""
    may_wait: bool = True
    """False if another job waits for this one, so that it must not wait for room itself."""


@dataclass(frozen=True)
class Bounds:
    """Every limit of the isolation; times in seconds, sizes in bytes."""

    preload_s: float = 120.0
    term_grace_s: float = 1.0
    """Seconds from SIGTERM to SIGKILL."""
    kill_grace_s: float = 3.0
    """Seconds from SIGKILL until the child is given up as unkillable."""
    drain_s: float = 0.5
    """How long the pipes of an ended child may stay open, held by a process that could not be killed."""
    output_bytes: int = 8 << 20
    """More output than this is a flood: 6.4 million log lines in 30 s have been seen of a broken driver. A probe writes
    up to 50 KB (measured with NCCL_DEBUG=INFO)."""
    kept_bytes: int = 64 << 10
    """Bytes kept of the beginning, and as many of the end, of each output stream."""
    record_bytes: int = 16 << 20
    restarts: int = 5
    """How often a server that died is started again."""


@dataclass(frozen=True)
class JobResult:
    """How a job ended: with a value, or with a cause."""

    key: str
    value: bytes | None
    """The JSON that the function returned; None if there is a cause."""
    cause: NoReading | None
    detail: str
    stdout: str
    stderr: str
    duration_s: float
    left: int = 0
    """Processes that outlived the job and were killed; counted on Linux only."""


class Captured:
    """The beginning and the end of a stream, of which the middle is dropped."""

    def __init__(self, kept_bytes: int) -> None:
        self._kept = kept_bytes
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0
        self.total = 0

    def feed(self, chunk: bytes) -> None:
        """Add the next bytes of the stream."""
        self.total += len(chunk)
        room = self._kept - len(self._head)
        self._head += chunk[:room]
        rest = chunk[room:] if room > 0 else chunk
        if rest:
            self._tail.append(rest)
            self._tail_bytes += len(rest)
            while self._tail_bytes - len(self._tail[0]) >= self._kept:
                self._tail_bytes -= len(self._tail.popleft())

    def text(self) -> str:
        """Return the kept text; a line in between says how much was dropped."""
        tail = b"".join(self._tail)[-self._kept :]
        dropped = self.total - len(self._head) - len(tail)
        gap = f"\n[gpudiag: {dropped} bytes dropped]\n".encode() if dropped else b""
        return bytes(self._head + gap + tail).decode(errors="replace")


def scratch_folder() -> Folder:
    """Make a folder for temporary files.

    The folder is where ``tempfile`` puts it, or else in shared memory: a container may have no other writable place. A
    name that is not UTF-8 is skipped: with it TensorFlow 2.21 raises ``RuntimeError: Unable to cast Python instance``
    for each ``tf.function``. Raises ``OSError`` if there is no place.
    """
    places = [Path("/dev/shm"), Path("/var/tmp")]  # noqa: S108  # only this user may enter what is made there
    with contextlib.suppress(OSError, UnicodeEncodeError):
        tempfile.gettempdir().encode()
        places.insert(0, Path(tempfile.gettempdir()))
    return Folder("job", places)


def one_line(text: str, most: int = 300) -> str:
    """Return ``text`` on one line, cut at ``most`` characters."""
    flat = " ".join(text.split())
    return flat if len(flat) <= most else flat[: most - 1] + "…"


def child_outcome(
    record: bytes, code: int | None, cause: NoReading | None, detail: str
) -> tuple[bytes | None, NoReading | None, str]:
    """Turn a child's record and exit code (negative for a signal) into a value, or a cause and its detail.

    A cause given beforehand (deadline, flood, interrupt, server lost) stands, except that a whole record counts when
    only the server was lost afterwards.
    """
    if cause is not None and cause is not NoReading.SERVER_LOST:
        return None, cause, detail
    ending = how_it_ended(code)
    if code is not None and code < 0:
        return None, NoReading.SIGNAL, ending
    size = int.from_bytes(record[:LENGTH_BYTES], "little")
    body = record[LENGTH_BYTES:]
    if len(record) < LENGTH_BYTES or len(body) != size:
        if cause is not None:
            return None, cause, detail
        if not record:
            return None, NoReading.NO_RESULT, f"{ending} without a result"
        return None, NoReading.BAD_RESULT, f"{ending} after {len(body)} of {size} bytes of its record"
    try:
        content = msgspec.json.decode(body, type=JobRecord)
        if content.raised is None:
            msgspec.json.decode(content.value)  # Raw is not looked into before
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return None, NoReading.BAD_RESULT, one_line(f"its record is malformed: {error}")
    if content.raised is None:
        return bytes(content.value), None, ""
    cause = content.raised.cause
    kind = f"{content.raised.type}: " if cause is NoReading.EXCEPTION else ""
    return None, cause, one_line(kind + content.raised.message)


def how_it_ended(code: int | None) -> str:
    """Describe an exit code in the sense of ``subprocess``: negative for a signal, None if unknown."""
    if code is None:
        return "ended in a way that is not known"
    if code < 0:
        signal_names = {int(number): number.name for number in signal.Signals}
        return f"killed by {signal_names.get(-code, f'signal {-code}')}"
    return f"exited with status {code}"
