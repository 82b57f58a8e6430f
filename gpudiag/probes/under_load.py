"""How the probes of level stress compare rates: GPUs with their twins, and the end of the time with its beginning.

Nothing is compared with a table of cards. A difference counts if it is larger than :data:`FLOOR` and than
:data:`SIGMAS` times its own error, which follows from how much the slices of each GPU differ among themselves.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpudiag.probe import LoadReading, Slice

FLOOR = 0.10
"""A GPU that is slower by less than this part is as it should be.

Healthy GPUs of one model in one cluster differ by 8 % as a rule, and by 22 % at most, at the same power limit (Sinha
et al., "Not All GPUs Are Created Equal", SC22, on V100 and A100)."""
MUCH = 0.25
"""A GPU that is slower by more than this part is faulty: more than any healthy one in that study."""
SIGMAS = 5.0
LEAST_SLICES = 3
"""With fewer slices of a kind of work, nothing is known about their noise."""


@dataclass(frozen=True)
class Rate:
    """The median rate of slices, with its relative standard error."""

    value: float
    error: float

    @classmethod
    def of(cls, slices: Sequence[Slice]) -> Rate | None:
        """Return the rate; None if there are too few slices."""
        rates = [part.rate for part in slices if part.rate > 0]
        if len(rates) < LEAST_SLICES:
            return None
        value = statistics.median(rates)
        spread = 1.4826 * statistics.median(abs(rate - value) for rate in rates)
        return cls(value, 1.2533 * spread / value / math.sqrt(len(rates)))


@dataclass(frozen=True)
class Deficit:
    """By which part something is slower than it should be, with the standard error of that."""

    value: float
    error: float

    @property
    def counts(self) -> bool:
        return self.value > max(FLOOR, SIGMAS * self.error)

    @property
    def is_much(self) -> bool:
        return self.value > max(MUCH, SIGMAS * self.error)


def works(reading: LoadReading, *, copies: bool) -> dict[str, list[Slice]]:
    """Return the slices under the load of all GPUs, by kind of work: copies, or all else."""
    found: dict[str, list[Slice]] = {}
    for part in reading.slices:
        if not part.alone and part.work.startswith("copy") == copies:
            found.setdefault(part.work, []).append(part)
    return found


def behind_twins(reading: LoadReading, twins: Iterable[LoadReading], *, copies: bool) -> dict[str, Deficit]:
    """Return by how much a GPU is slower than the median of its twins, by kind of work."""
    own, others = works(reading, copies=copies), [works(twin, copies=copies) for twin in twins]
    found = {}
    for work, slices in own.items():
        rate = Rate.of(slices)
        rates = [known for other in others if (known := Rate.of(other.get(work, ()))) is not None]
        if rate is not None and rates:
            usual = statistics.median(other.value for other in rates)
            error = statistics.median(other.error for other in rates)
            found[work] = Deficit(1 - rate.value / usual, math.hypot(rate.error, error / math.sqrt(len(rates))))
    return found


def slowing(reading: LoadReading) -> dict[str, Deficit]:
    """Return by how much a GPU was slower in the last third of the time than in the first, by kind of work."""
    found = {}
    for work, slices in works(reading, copies=False).items():
        third = len(slices) // 3
        first, last = Rate.of(slices[:third]), Rate.of(slices[len(slices) - third :])
        if first is not None and last is not None:
            found[work] = Deficit(1 - last.value / first.value, math.hypot(first.error, last.error))
    return found


def typical(deficits: dict[str, Deficit]) -> Deficit | None:
    """Return the median of the deficits of all kinds of work: a GPU that is slow is slow in all of them."""
    if not deficits:
        return None
    values = [deficit.value for deficit in deficits.values()]
    errors = [deficit.error for deficit in deficits.values()]
    return Deficit(statistics.median(values), statistics.median(errors) / math.sqrt(len(errors)))
