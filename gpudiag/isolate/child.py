"""A job on its way, as its supervisor sees it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import partial

from gpudiag.hardware.starvation import Starvation
from gpudiag.isolate.job import Bounds, Captured, Job, JobResult, child_outcome
from gpudiag.isolate.polling import Polling, drain
from gpudiag.isolate.worker import CAPTURE_BYTES
from gpudiag.model.report import NoReading
from gpudiag.text import counted

RESULT, STREAMS = "result", ("stdout", "stderr")
"""The contents of a job's pipes, in the order in which its server gets them."""


@dataclass
class Child:
    """A job that waits for its server, runs, or is being killed."""

    job: Job
    bounds: Bounds
    streams: dict[str, Captured] = field(init=False)
    record: bytearray = field(default_factory=bytearray)
    open: dict[int, str] = field(default_factory=dict)
    """The read ends of its pipes, with their contents."""
    order: int | None = None
    """The file of its order. After the order it holds the stderr that the job has captured and not yet passed on."""
    order_bytes: int = 0
    """The length of the order."""
    pid: int | None = None
    sent_at: float | None = None
    """When the job was sent to its server; the deadline counts from here."""
    starvation: Starvation | None = None
    """The record of how long the job was kept from running; None before it was sent to its server."""
    more_s: float = 0.0
    """Seconds by which the deadline of the child was moved."""
    kill_at: float | None = None
    """When the next step of killing it is due: TERM, then KILL, then giving up."""
    rung: int = 0
    cause: NoReading | None = None
    """Why it is being killed; None for a child that ends by itself."""
    detail: str = ""
    code: int | None = None
    """Exit code in the sense of ``subprocess``; None while it runs, and if it was given up as unkillable."""
    close_at: float | None = None
    """When the pipes of the child are closed even if another process still holds them."""
    leftovers: int = 0
    """The processes that it left running."""
    unkillable: int = 0
    """How many of the leftover processes this user may not kill."""

    def __post_init__(self) -> None:
        self.streams = {what: Captured(self.bounds.kept_bytes) for what in STREAMS}

    @property
    def due(self) -> float | None:
        """When the child needs attention even if nothing has arrived from it."""
        if self.close_at is not None:
            return self.close_at
        if self.kill_at is not None:
            return self.kill_at
        return None if self.sent_at is None else self.sent_at + self.job.deadline_s + self.more_s

    @property
    def flood(self) -> str:
        """Says so if the child has written more than a job may; otherwise "".

        A file of captured output that is full says nothing more: TensorFlow may repeat an error there without end.
        """
        if sum(stream.total for stream in self.streams.values()) > self.bounds.output_bytes:
            return f"wrote more than {self.bounds.output_bytes >> 20} MiB to stdout and stderr"
        if self.order is not None and os.fstat(self.order).st_size >= CAPTURE_BYTES:
            return f"wrote more than {CAPTURE_BYTES >> 20} MiB to stderr while it was captured"
        return ""

    def feed(self, what: str, chunk: bytes) -> None:
        """Add bytes that arrived on a pipe; a record is kept up to one byte above its limit, to show that it is too
        long."""
        if what == RESULT:
            self.record += chunk[: self.bounds.record_bytes - len(self.record) + 1]
        else:
            self.streams[what].feed(chunk)

    def close(self, polling: Polling) -> None:
        """Read the rest of its pipes, and of what it captured before it died; close them."""
        for fd, what in self.open.items():
            drain(fd, partial(self.feed, what))
            polling.close_fd(fd)
        self.open.clear()
        if self.order is not None:
            with os.fdopen(self.order, "rb") as file:
                file.seek(self.order_bytes)
                self.feed("stderr", file.read())
            self.order = None

    def result(self, now: float) -> JobResult:
        """Return how the job ended, as of the time ``now``."""
        value, cause, detail = child_outcome(bytes(self.record), self.code, self.cause, self.detail)
        if killed := self.leftovers - self.unkillable:
            self.note(f"killed {counted(killed, 'process')} left by it")
        if self.unkillable:
            left = counted(self.unkillable, "process")
            self.note(f"it left {left} of another user, which this user may not kill")
        return JobResult(
            key=self.job.key,
            value=value,
            cause=cause,
            detail=detail,
            stdout=self.streams["stdout"].text(),
            stderr=self.streams["stderr"].text(),
            duration_s=now - self.sent_at if self.sent_at is not None else 0.0,
            left=self.leftovers,
        )

    def note(self, text: str) -> None:
        """Add a line of gpudiag's own to the job's output."""
        self.streams["stderr"].feed(f"\n[gpudiag: {text}]\n".encode())
