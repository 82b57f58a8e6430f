"""How the probes of level stress spend their time, and how they compare rates.

GPUs are compared with others of their model, and the end of the time with its beginning; nothing is compared with a
table of cards. A difference counts if it is larger than :data:`FLOOR` and than :data:`SIGMAS` times its own error,
which follows from how much the slices of each GPU differ among themselves. A busy host makes no GPU slow: the half of
the slices counts in which the process waited least for a processor, and the part of the time that it waited is taken
off. The worst of 35 healthy simulated GPUs on two busy processors so seemed 4 % slower than its twins; by plain medians
it would have been 8 %.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from gpudiag.model.facts import Facts
from gpudiag.probe import SEE_THE_CAUSE, FindingKind, Findings, GpuFaults, Load, LoadReading, Slice, fail
from gpudiag.probes.comparison import announce
from gpudiag.text import counted

SLICE_S = 0.5
"""Length of a slice; shorter if the time is short, longer if it is long."""
MOST_SLICES = 240
"""The most slices of a process and a turn, so that a report of an hour is not larger than one of two minutes."""
LEAST_SLICES = 3
"""With fewer slices of a kind of work, nothing is known about their noise."""
LEAST_OF_THIRD = 8
"""With fewer slices in a third of the time it is not judged whether a GPU became slower. Of 5,000 series of random
numbers that deviate by 5 %, 12 seemed to with 6 slices, 5 with 8, none with 12."""
LOOKS = 5
"""About how often in a slice the host looks at the number of wrong elements."""


@dataclass
class Work:
    """A kind of work, prepared."""

    name: str
    amount: float
    """Floating-point operations or bytes of a step."""
    step: Callable[[], Any]
    """Do a step; return the number of wrong elements, a tensor."""
    where: Callable[[], str]
    """Say where the last step was wrong."""
    device: str = "GPU:0"
    batch: int = 1
    """Steps until the host looks."""


def spend(load: Load, works: Sequence[Work], until_s: float, *, alone: bool) -> None:
    """Do these kinds of work in turn, a slice each, and note each slice, until ``until_s`` by ``load.now``."""
    left_s = until_s - load.now()
    slice_s = max(left_s / MOST_SLICES, min(SLICE_S, left_s / (LEAST_SLICES + 1) / len(works)))
    for work in itertools.cycle(works):
        began_s = load.now()
        if began_s + slice_s / 2 > until_s:
            return
        announce(work.name, work.device)
        steps, wrong, where = 0, 0, ""
        fastest_s, waited = math.inf, None
        while load.now() < min(began_s + slice_s, until_s):
            before, now = waited_s(), load.now()
            counts = [work.step() for _ in range(work.batch)]
            found = sum(int(count) for count in counts)  # waits for the device
            took_s = load.now() - now
            if found and not where:
                where = work.where()
            if took_s / work.batch < fastest_s:
                fastest_s = took_s / work.batch
                waited = None if before is None else round(((waited_s() or before) - before) / took_s, 3)
            steps, wrong = steps + work.batch, wrong + found
            work.batch = max(1, min(1000, round(work.batch * slice_s / LOOKS / max(took_s, 1e-4))))
        if steps:  # none if this process was stopped until the slice was over
            seconds, rate = round(load.now() - began_s, 3), work.amount / fastest_s
            load.note(Slice(round(began_s, 3), seconds, work.name, rate, waited, steps, wrong, where, alone))


def waited_s() -> float | None:
    """Return for how many seconds the threads of this process have waited for a processor; None if the kernel does not
    count it."""
    found = None
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError, ValueError, IndexError):  # it has ended, or the kernel counts nothing
            ran_and_waited = (thread / "schedstat").read_bytes().split()
            found = (found or 0.0) + int(ran_and_waited[1]) / 1e9
    return found


def anew(tf: Any, tensor: Any) -> Any:
    """Return a tensor of the same memory; a tensor that was copied to a device is not copied there again."""
    with tf.device(tensor.backing_device):
        return tf.identity(tensor)


FLOOR = 0.10
"""A GPU that is slower by less than this part is not reported.

GPUs of one model in one cluster differ by 8 % on average, and by 22 % in the cluster where they differ most (Sinha et
al., "Not All GPUs Are Created Equal", SC22, arXiv 2208.11035)."""
MUCH = 0.25
"""A GPU that is slower by more than this part is a failure: more than the usual variation in that study, which also has
outliers up to 1.5 times slower than the median."""
SIGMAS = 5.0
"""A difference that is not so many times as large as its standard error may be noise."""
MOST_WAITED = 0.3
"""A slice whose process waited for a processor in more than this part of its fastest tenth of a second does not
count."""


def quietest(slices: Sequence[Slice]) -> list[Slice]:
    """Return the half of the slices in which the process waited least for a processor."""
    known = sorted(slices, key=lambda part: part.waited or 0.0)[: max(LEAST_SLICES, (len(slices) + 1) // 2)]
    return [part for part in known if part.rate > 0 and (part.waited or 0.0) <= MOST_WAITED]


@dataclass(frozen=True)
class Rate:
    """The median rate of slices, with its relative standard error."""

    value: float
    error: float

    @classmethod
    def of(cls, slices: Sequence[Slice]) -> Rate | None:
        """Return the rate of the quietest half of slices of one kind of work, as it would have been had the process
        never waited for a processor; None if there are too few."""
        rates = [part.rate / (1 - (part.waited or 0.0)) for part in quietest(slices)]
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

    @classmethod
    def of(cls, rate: Rate, others: Sequence[Rate]) -> Deficit:
        """Return by how much a rate is below the median of others."""
        usual = statistics.median(other.value for other in others)
        error = statistics.median(other.error for other in others) / math.sqrt(len(others))
        return cls(1 - rate.value / usual, math.hypot(rate.error, error))

    @property
    def counts(self) -> bool:
        return self.value > max(FLOOR, SIGMAS * self.error)

    @property
    def is_much(self) -> bool:
        return self.value > max(MUCH, SIGMAS * self.error)


COPIES = "copy"
"""How the names of copies begin."""


def by_work(slices: Iterable[Slice]) -> dict[str, list[Slice]]:
    """Return slices by kind of work."""
    grouped: dict[str, list[Slice]] = {}
    for part in slices:
        grouped.setdefault(part.work, []).append(part)
    return grouped


class LoadFaults(GpuFaults):
    """The findings of every probe of level stress."""

    ended = fail(
        "after {seconds} of {planned} s under load: {how}",
        means="A GPU, the link between two, or a library failed under load.",
        do=SEE_THE_CAUSE,
    )


def early_end(reading: LoadReading) -> Findings:
    """Yield that the load ended before its time, if the GPU or the driver ended it."""
    if reading.failed is not None:
        seconds, planned = round(reading.measured_s, 1), round(reading.planned_s, 1)
        yield LoadFaults.ended.found(seconds=seconds, planned=planned, how=reading.failed.detail)


def wrong_results(reading: LoadReading, kind: FindingKind) -> Findings:
    """Yield a finding of this kind for each kind of work of which an element was wrong."""
    for work, slices in by_work(reading.slices).items():
        if wrong := sum(part.wrong for part in slices):
            results = sum(part.results for part in slices)
            where = next(part.where for part in slices if part.wrong)
            place = {"where": where} if where else {}
            yield kind.found(work=work, results=results, wrong=counted(wrong, "wrong element"), **place)


def twins(reading: LoadReading, others: Iterable[LoadReading], facts: Facts) -> tuple[LoadReading, ...]:
    """Return those of ``others`` that are of GPUs of the same model; MIG instances have none, as they need not be
    alike."""
    models = {device.pci_bus_id: device.name for device in facts.nvml_devices if not device.mig_uuids}
    own = [models.get(pci) for pci in reading.given]
    if None in own:
        return ()
    return tuple(other for other in others if [models.get(pci) for pci in other.given] == own)


def rates(reading: LoadReading) -> dict[str, Rate]:
    """Return the rate of each kind of work under the load of all GPUs, where it is known."""
    known = {work: Rate.of(slices) for work, slices in by_work(reading.together).items()}
    return {work: rate for work, rate in known.items() if rate is not None}


def blur(reading: LoadReading) -> float:
    """Return which part of the time the process waited for a processor, even in the quietest slices.

    A GPU that is slower by less is not found.
    """
    quiet = [part for slices in by_work(reading.together).values() for part in quietest(slices)] or reading.slices
    return statistics.median(part.waited or 0.0 for part in quiet) if quiet else 0.0


def behind(reading: LoadReading, twins: Iterable[LoadReading]) -> dict[str, Deficit]:
    """Return by how much a GPU is slower than the median of its twins, by kind of work."""
    others = [rates(twin) for twin in twins]
    return {
        work: Deficit.of(rate, known)
        for work, rate in rates(reading).items()
        if (known := [other[work] for other in others if work in other])
    }


def slowing(reading: LoadReading) -> Deficit | None:
    """Return by how much a GPU was slower in the last third of the time than in the first; None if that is not known.

    The slices of all kinds of work are put together, each by the median rate of its kind: those of one kind are few.
    """
    parts = []
    for work, slices in by_work(reading.together).items():
        usual = statistics.median(part.rate for part in slices)
        if usual > 0 and not work.startswith(COPIES):
            parts += [msgspec.structs.replace(part, rate=part.rate / usual) for part in slices]
    parts.sort(key=lambda part: part.began_s)
    third = len(parts) // 3
    if third < LEAST_OF_THIRD:
        return None
    first, last = Rate.of(parts[:third]), Rate.of(parts[len(parts) - third :])
    return None if first is None or last is None else Deficit.of(last, [first])


def typical(deficits: Iterable[Deficit]) -> Deficit | None:
    """Return the median of deficits, of several kinds of work; None if there are none."""
    known = list(deficits)
    if not known:
        return None
    error = statistics.median(deficit.error for deficit in known) / math.sqrt(len(known))
    return Deficit(statistics.median(deficit.value for deficit in known), error)
