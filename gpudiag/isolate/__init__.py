"""Runs functions in child processes that may crash, hang, flood or leave orphans, and always gets an answer.

``Supervisor`` (Linux) keeps *fork servers*: a server is an interpreter that has, say, imported TensorFlow once, and
forks one child per job. ``OneByOne`` (other systems: no probe runs there) starts an interpreter per job. Both run jobs
and know nothing about probes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import TracebackType
from typing import Protocol

from gpudiag.isolate.job import Bounds, Job, JobResult, ServerSpec, scratch_folder
from gpudiag.model.report import NoReading

__all__ = ["Bounds", "JobResult", "Job", "ServerSpec", "Supervision", "fork_refusal", "scratch_folder", "supervise"]


class Supervision(Protocol):
    """The common interface of both supervisors. Single-threaded: call ``wait`` often, it does all the work."""

    def __enter__(self) -> Supervision: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def prepare(self, server: str) -> None:
        """Start the server called ``server`` now, so that it is ready when the first job needs it."""

    def start(self, job: Job) -> None:
        """Begin ``job``; a later ``wait`` returns its result."""

    def wait(self, timeout_s: float) -> list[JobResult]:
        """Work for at most ``timeout_s`` seconds, less if a job ends or ``wake`` is called; return the jobs that
        ended."""

    def kill(self, key: str, cause: NoReading, detail: str) -> None:
        """End the job ``key`` now, if it has not ended; ``wait`` reports it with this cause."""

    def pid(self, key: str) -> int | None:
        """Return the process of the job ``key``; None before it has one, and on systems other than Linux."""

    def allow(self, key: str, seconds: float) -> None:
        """Extend the deadline of the job ``key`` by this many seconds."""

    def starved_s(self, key: str) -> float:
        """Return for how many seconds the job ``key`` was kept from running so far; 0 on systems other than Linux."""

    def busy(self) -> str:
        """Return a sentence on how long the jobs were kept from running, if that was most of their time; else ""."""

    def said(self, key: str) -> str:
        """Return the kept part of the standard error of the job ``key``."""

    @property
    def wakeup_fd(self) -> int:
        """A file descriptor for ``signal.set_wakeup_fd``: a byte written to it ends a ``wait`` early; -1 for none."""


TICK_S = 0.1
"""The longest time of one ``wait``; then the caller checks whether the run must end."""


def run_to_end(
    children: Supervision,
    job: Job,
    stopped: Callable[[], tuple[NoReading, str] | None] = lambda: None,
    tick: Callable[[], None] = lambda: None,
) -> JobResult:
    """Run one job and return its result; it ends early with the cause and detail that ``stopped`` returns."""
    children.start(job)
    while True:
        if (why := stopped()) is not None:
            children.kill(job.key, *why)
        for result in children.wait(TICK_S):
            if result.key == job.key:
                return result
        tick()


def fork_refusal() -> str | None:
    """Return why children cannot be forked on this platform, or None if they can."""
    if sys.platform == "linux":
        return None
    return f"--isolation fork needs Linux (this is {sys.platform}): use --isolation spawn."


def supervise(servers: dict[str, ServerSpec], bounds: Bounds) -> Supervision:
    """Return the supervisor for this platform."""
    if sys.platform == "linux":
        from gpudiag.isolate.supervisor import Supervisor

        return Supervisor(servers, bounds)
    from gpudiag.isolate.one_by_one import OneByOne

    return OneByOne(servers, bounds)
