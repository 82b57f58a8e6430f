"""Which probes stand still, and in which call: a hang is seen when it lasts, and not when a deadline has passed.

A process stands still if its first thread and those of all its descendants wait in the kernel without being woken, and
so does the thread in a call of a library. A slow call ends; it is recorded, and its time does not count for the
deadline of its probe. A call that does not end within :data:`HANG_S` hangs. Detecting this does not need the call's
name, which a separate process reads.
"""

from __future__ import annotations

import contextlib
import time
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from gpudiag.hardware.waiting import WaitPlace, children, woken
from gpudiag.isolate import Job, JobResult
from gpudiag.run.jobs import Jobs

EVERY_S = 0.5
"""Seconds between two looks at a process."""
NAMED_FROM_S = 4.0
"""After this many seconds of standstill the stack is read, and the time no longer counts."""
HANG_S = 35.0
"""A call that takes longer hangs: as long as a GPU may take to answer."""
MOST_MORE_S = 100.0
"""The most by which standstills extend the deadline of a probe."""
_LOOK_S = 8.0
"""Time limit for reading in which call a process waits."""
_BUSY = 0.05
"""Processor share of all threads above which other threads compute and the first one waits for them."""
_TICKS_A_SECOND = 100
"""Ticks per second of the times in /proc, on every Linux that TensorFlow runs on."""


class ReturnedCall(NamedTuple):
    """A call in which a process waited for long, and that has returned."""

    where: WaitPlace
    seconds: float


class Standstill:
    """How long the process of one job has done nothing, and the call in which it waits."""

    def __init__(self, jobs: Jobs, key: str, server: str, most_more_s: float = MOST_MORE_S) -> None:
        """Watch the job ``key``; standstills extend its deadline by ``most_more_s`` at most."""
        self._jobs = jobs
        self._key = key
        self._server = server
        self._most_more_s = most_more_s
        self.seconds = 0.0
        """Seconds that the process had stood still at the last look; 0 if it is active."""
        self.where: WaitPlace | None = None
        """The call in which the process waits; None if nobody has read it."""
        self._mark: tuple[int, ...] = ()
        """Each process, with how often its first thread was woken."""
        self._since = self._looked_at = time.monotonic()
        self._busy_s = 0.0
        """Processor time that all threads had taken when the standstill began."""
        self._allowed_s = 0.0
        self._starved_s = 0.0
        """Seconds for which the process was kept from running; they do not count for the deadline either."""
        self._is_being_read = False
        """True while a job reads in which call the process waits."""
        self._returned: list[ReturnedCall] = []

    def look(self) -> None:
        """Look at the job, as often as that makes sense; one that waits gets more time."""
        supervision = self._jobs.children
        starved_s = supervision.starved_s(self._key)
        self._allow(starved_s - self._starved_s)
        self._starved_s = starved_s
        now = time.monotonic()
        if now - self._looked_at >= EVERY_S and (pid := supervision.pid(self._key)) is not None:
            self._look_at(pid, now)

    def returned_calls(self) -> list[ReturnedCall]:
        """Return the calls that have returned since the last time this method was called."""
        returned, self._returned = self._returned, []
        return returned

    def _look_at(self, pid: int, now: float) -> None:
        before, self._looked_at = self._looked_at, now
        mark = first_threads(pid)
        has_returned = self.where is not None and self.where.thread and woken(self.where.thread) != self.where.woken
        if mark is None or mark != self._mark or has_returned:
            if self.where is not None:
                self._returned.append(ReturnedCall(self.where, self.seconds))
            self._mark, self._since, self.seconds, self.where = mark or (), now, 0.0, None
            self._busy_s = 0.0 if mark is None else busy_s(mark)
            return
        still_s = now - self._since
        if busy_s(mark) - self._busy_s > max(_BUSY * still_s, 2 / _TICKS_A_SECOND):
            self.seconds = 0.0
            return
        self.seconds = still_s
        if still_s < NAMED_FROM_S:
            return
        self._allow(now - before)
        if self.where is None and not self._is_being_read:
            self._is_being_read = True
            job = Job(f"{self._key}/waits", "gpudiag.hardware.waiting:look", {"pid": pid}, _LOOK_S, self._server)
            self._jobs.start(job, partial(self._on_read, self._since))

    def _on_read(self, since: float, result: JobResult) -> None:
        """Record the call that a job has read, if the process has waited in it ever since."""
        self._is_being_read = False
        if self._since == since and self.seconds:
            self.where = WaitPlace() if result.value is None else msgspec.json.decode(result.value, type=WaitPlace)

    def _allow(self, seconds: float) -> None:
        """Extend the deadline of the job by time that does not count, up to the limit."""
        if (more_s := min(seconds, self._most_more_s - self._allowed_s)) > 0:
            self._allowed_s += more_s
            self._jobs.children.allow(self._key, more_s)


def first_threads(pid: int) -> tuple[int, ...] | None:
    """Return a process and all its descendants, each with how often its first thread was woken; None if one of them
    runs."""
    counts = list[int]()
    waiting = [pid]
    while waiting:
        process = waiting.pop()
        if (count := woken(f"/proc/{process}")) is None:
            return None
        counts += [process, count]
        waiting += children(process)
    return tuple(counts)


def busy_s(mark: tuple[int, ...]) -> float:
    """Return the processor seconds that all threads of the processes of :func:`first_threads` have taken."""
    ticks = 0
    for pid in mark[::2]:
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / _TICKS_A_SECOND
