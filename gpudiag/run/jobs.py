"""The jobs of a run under way, each with the function that gets its result."""

from __future__ import annotations

from collections.abc import Callable

from gpudiag.isolate import TICK_S, Job, JobResult, Supervision
from gpudiag.model.report import NoReading

Receive = Callable[[JobResult], None]
"""Called once, with the result of a job."""


class Jobs:
    """Starts jobs and hands out their results."""

    def __init__(self, children: Supervision) -> None:
        self.children = children
        self._receivers: dict[str, Receive] = {}

    def start(self, job: Job, receive: Receive) -> None:
        """Start ``job``; a later :meth:`poll` calls ``receive`` with its result."""
        self._receivers[job.key] = receive
        self.children.start(job)

    def poll(self) -> None:
        """Wait until a job ends, for :data:`TICK_S` at most, and hand out the results."""
        for result in self.children.wait(TICK_S):
            self._receivers.pop(result.key)(result)

    def kill_all(self, cause: NoReading, detail: str) -> None:
        """End every job that has not ended, with this cause."""
        for key in self._receivers:
            self.children.kill(key, cause, detail)
