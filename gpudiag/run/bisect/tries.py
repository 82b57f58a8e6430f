"""Starts the interpreters of a search in parallel, each with a deadline, all within a time limit."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import msgspec

from gpudiag.isolate import Job, JobResult, Supervision
from gpudiag.model.report import NoReading
from gpudiag.run.bisect import attempt
from gpudiag.run.bisect.attempt import Reached
from gpudiag.run.bisect.parts import Variant
from gpudiag.run.bisect.search import OutOfTime

LONGEST_S = 40.0
"""Time limit for one try: an import takes 4 to 20 s."""
_TICK_S = 0.1
_OF_THE_TRY = (NoReading.TIMEOUT, NoReading.UNKILLABLE, NoReading.OUTPUT_FLOOD)
"""Ends that the tried interpreter causes; all others are gpudiag's own and say nothing about the variant."""
_LEAST_S = 1.0
"""No try is started with fewer seconds left."""


class Tries:
    """Tries variants within a time limit."""

    def __init__(
        self,
        children: Supervision,
        server: str,
        *,
        jobs: int,
        within_s: float,
        wanted: int,
        stopped: Callable[[], str] = lambda: "",
        tick: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._children = children
        self._server = server
        self._jobs = jobs
        self._until = time.monotonic() + within_s
        self._longest_s = min(LONGEST_S, within_s)
        self._wanted = wanted
        self._stopped = stopped
        self._tick = tick
        self.count = 0
        """The number of tries that were started."""

    def __call__(self, variants: Sequence[Variant], all_of_them: bool) -> Sequence[Reached | None]:
        """Return the result of each variant; None for one that was not needed because another one works."""
        reached: dict[int, Reached] = {}
        running: dict[str, int] = {}
        pending = list(range(len(variants)))
        cut = ""
        while pending or running:
            done = not all_of_them and any(result.works(self._wanted) for result in reached.values())
            left_s = self._until - time.monotonic()
            cut = cut or self._stopped() or ("the time is up" if left_s <= 0 else "")
            if done or cut or (pending and not running and left_s < _LEAST_S):
                cut = cut or ("" if done else "the time is up")
                pending.clear()
                for key in running:
                    self._children.kill(key, NoReading.INTERRUPTED, "not needed")
            while pending and len(running) < self._jobs and left_s >= _LEAST_S:
                number = pending.pop(0)
                running[self._start(variants[number], left_s)] = number
            for ended in self._children.wait(_TICK_S) if running else ():
                number = running.pop(ended.key)
                if ended.value is None and ended.cause not in (*_OF_THE_TRY, NoReading.INTERRUPTED):
                    cut = cut or ended.detail
                elif not (ended.cause is NoReading.INTERRUPTED or (done and ended.value is None)):
                    reached[number] = _reached(ended)
            self._tick(self.count)
        if cut and not any(result.works(self._wanted) for result in reached.values()):
            raise OutOfTime
        if cut and all_of_them and len(reached) < len(variants):
            raise OutOfTime
        return [reached.get(number) for number in range(len(variants))]

    def _start(self, variant: Variant, left_s: float) -> str:
        self.count += 1
        key = f"try {self.count}"
        deadline_s = min(self._longest_s, left_s)
        self._children.start(Job(key, attempt.TARGET, attempt.argument(variant), deadline_s, self._server))
        return key


def _reached(ended: JobResult) -> Reached:
    """Return how far a try got; of one that timed out or flooded its output that is not known."""
    if ended.value is None:
        return Reached(ended=ended.detail, cut_short=True)
    reached = msgspec.json.decode(ended.value, type=Reached)
    if reached.ended and (last := _last_line(ended.stderr)):
        return msgspec.structs.replace(reached, ended=f"{reached.ended}: {last}")
    return reached


def _last_line(text: str) -> str:
    """Return the last fatal line, or else the last line, of a process that ended without giving a reason."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    fatal = [line for line in lines if line.startswith("F0") or "Error" in line]
    return (fatal or lines or [""])[-1][:300]
