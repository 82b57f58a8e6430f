"""Measures how long a process was kept from running: a deadline missed on a busy machine says nothing about a GPU.

The kernel counts, for each thread, how long it ran and how long it waited for a processor (``schedstat``). Threads of
one process that wait for each other do not show a busy machine, so time counts as waited only while all threads
together had less than one processor. A process that was stopped (SIGSTOP) did not run either; one that is still stopped
hangs. Waiting for a disk, and time that a hypervisor takes, are not seen.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gpudiag.hardware.waiting import children

MOST = 0.5
"""A process that was kept from running for this share of its time had no fair chance."""

Threads = Mapping[int, tuple[int, int]]
"""Nanoseconds that each thread ran, and that it waited for a processor, by its number."""


@dataclass
class Starvation:
    """How long a process, with all its descendants, was kept from running, from ``since`` on."""

    since: float
    """When the watch began, by ``time.monotonic``."""
    waited_s: float = 0.0
    """Seconds that the process waited for a processor."""
    stopped_s: float = 0.0
    """Seconds for which the process was stopped until it ran again; a process that stays stopped hangs."""
    _stopped_s: float = 0.0
    _looked: float = field(init=False)
    _threads: Threads = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._looked = self.since

    @property
    def seconds(self) -> float:
        """Seconds for which the process was kept from running."""
        return self.waited_s + self.stopped_s

    @property
    def watched_s(self) -> float:
        """Seconds for which the process was watched."""
        return self._looked - self.since

    def look(self, pid: int, now: float) -> None:
        """Take a sample of the process; any time may pass between two samples."""
        self.note(threads(pid), now, stopped=is_stopped(pid))

    def note(self, counted: Threads, now: float, *, stopped: bool) -> None:
        """Add the kernel's counts since the last sample."""
        interval_s, self._looked = now - self._looked, now
        before, self._threads = self._threads, counted
        if stopped:
            self._stopped_s += interval_s
            return
        self.stopped_s, self._stopped_s = self.stopped_s + self._stopped_s, 0.0
        ran_s, waited_s = (
            sum(times[which] - before.get(thread, (0, 0))[which] for thread, times in counted.items()) / 1e9
            for which in (0, 1)
        )
        self.waited_s += max(0.0, min(waited_s, interval_s - ran_s))

    @property
    def is_most(self) -> bool:
        """True if the process was kept from running for most of the time."""
        return self.watched_s > 0 and self.seconds >= MOST * self.watched_s

    def __str__(self) -> str:
        """Return a sentence such as ``its processes waited 41 of 60 s for a processor``."""
        if self.stopped_s > self.waited_s:
            return f"it was stopped for {self.stopped_s:.2g} of {self.watched_s:.2g} s"
        return f"its processes waited {self.waited_s:.2g} of {self.watched_s:.2g} s for a processor"


def threads(pid: int) -> Threads:
    """Return the kernel's counts for the threads of a process and of all its descendants, where available."""
    return {thread: times for number in _tree(pid) for thread, times in _of_process(number)}


def _tree(pid: int) -> Iterator[int]:
    yield pid
    for child in children(pid):
        yield from _tree(child)


def _of_process(pid: int) -> Iterator[tuple[int, tuple[int, int]]]:
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError, ValueError):  # the thread has ended, or nobody counts
                ran, waited, _ = (task / "schedstat").read_text().split()
                yield int(task.name), (int(ran), int(waited))


def is_stopped(pid: int) -> bool:
    """Return whether a process was stopped, as by SIGSTOP, and so cannot answer."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state in "Tt"
