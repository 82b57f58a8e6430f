"""The pictures of a run of level stress: each GPU over the time of the load, and the links between GPUs. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from gpudiag.model.health import SLOWED, HealthSample
from gpudiag.model.report import LOAD, Report
from gpudiag.report import load
from gpudiag.report.load import GpuLoad, Link
from gpudiag.report.page.pictures import MOST_POINTS, SIDE
from gpudiag.text import one_line

MOST_IN_MATRIX = 16
"""With more GPUs, the slowest links are listed."""
_LISTED = 32
_LEAST_POINTS = 60
_HIGHEST = 1.25
"""The highest rate that is drawn, as a part of that of the fastest tenth."""
_HEADROOM = 1.5
_COLDEST = 20
"""The lowest temperature that is drawn."""
_REASONS = {"power_cap": "the cap of its power", "chosen_clocks": "clocks that somebody chose"}


@dataclass(frozen=True)
class Panel:
    """One quantity over the time."""

    name: str
    highest: str
    """The highest value, and its distance from the top in percent."""
    y: float
    least: str
    path: str
    """The line, in a square of :data:`SIDE`."""
    marks: str = ""
    """Places that are wrong: lines without length, drawn as dots."""


@dataclass(frozen=True)
class Span:
    """A part of the time, in percent of all of it."""

    x: float
    width: float
    text: str


@dataclass(frozen=True)
class LoadChart:
    """A GPU over the time of the load: several quantities, one below the other, on one axis."""

    title: str
    text: str
    """The chart in words."""
    seconds: str
    panels: tuple[Panel, ...]
    alone: tuple[Span, ...]
    """When it computed while the others were at rest."""
    throttled: tuple[Span, ...]
    phases: tuple[Span, ...]
    """When each probe began."""


@dataclass(frozen=True)
class _Axis:
    """The time from ``begins`` to ``ends``, in seconds since the run began."""

    begins: float
    ends: float

    def at(self, seconds: float) -> float:
        """Return the part of the width, from 0 to 1."""
        return min(1.0, max(0.0, (seconds - self.begins) / (self.ends - self.begins)))

    def span(self, begins: float, ends: float, text: str) -> Span:
        x = round(100 * self.at(begins), 2)
        return Span(x, max(0.2, round(100 * self.at(ends) - x, 2)), text)


def charts(report: Report) -> tuple[LoadChart, ...]:
    """Return a chart for each GPU that was under load."""
    loads = load.gpus(report)
    if not loads:
        return ()
    readings = [(row, reading) for row in report.rows if row.area == LOAD and (reading := load.reading_of(row))]
    times = [(reading.load_began_s, reading.load_began_s + reading.measured_s) for _, reading in readings]
    axis = _Axis(min(begins for begins, _ in times), max(ends for _, ends in times))
    if not axis.ends > axis.begins:
        return ()
    began = {row.name: begins for (row, _), (begins, _) in zip(readings, times, strict=True)}
    phases = tuple(
        axis.span(begins, begins, one_line(name)[:40])
        for name, begins in sorted(began.items(), key=lambda phase: phase[1])
    )
    most = max(_LEAST_POINTS, MOST_POINTS // (4 * len(loads)))
    return tuple(_chart(one, axis, phases, most) for one in loads)


def _chart(one: GpuLoad, axis: _Axis, phases: tuple[Span, ...], most: int) -> LoadChart:
    began = one.reading.load_began_s
    alone = [part for part in one.reading.slices if part.alone]
    samples = [
        sample for sample in (one.health.samples if one.health else ()) if axis.begins <= sample.at_s <= axis.ends
    ]
    measured = (_panel(quantity, samples, axis, most) for quantity in _QUANTITIES)
    panels = [_rates(one, axis, most), *(panel for panel in measured if panel is not None)]
    spans = [(began + part.began_s, began + part.began_s + part.seconds) for part in alone if part.began_s >= 0]
    turns = [axis.span(min(spans)[0], max(spans)[1], "alone")] if spans else []
    return LoadChart(
        title=f"GPU {one.gpu.index}",
        text=_words(one),
        seconds=f"{axis.ends - axis.begins:.0f} s",
        panels=tuple(panels),
        alone=tuple(turns),
        throttled=tuple(_throttled(samples, axis)),
        phases=phases,
    )


def _words(one: GpuLoad) -> str:
    """Return the chart in words."""
    parts = [one.reading.outcome_of("results")]
    if (share := one.share()) is not None:
        parts.append(f"{load.percent(share)} of the median of its model")
    if one.hottest is not None:
        parts.append(f"at most {one.hottest} °C")
    reasons = {**_REASONS, **SLOWED}
    parts += [
        f"clocks lowered for {seconds:.0f} s: {reasons.get(reason) or one_line(reason).replace('_', ' ')}"
        for reason, seconds in one.throttled_s().items()
    ]
    parts += [f"{rose:,} {load.COUNTERS[name]}" for name, rose in one.rose.items()]
    if one.reading.ended is not None:
        parts.append(f"ended early: {one_line(one.reading.ended.detail)}")
    return "; ".join(parts)


def _rates(one: GpuLoad, axis: _Axis, most: int) -> Panel:
    """Return the rate of each slice, relative to the fastest tenth of the slices of this work on GPUs of its model.

    Relative to its own median, a GPU that is throttled for most of the time would be drawn as one that never was.
    """
    began = one.reading.load_began_s
    fastest = {work: _fastest_tenth(rates) for work, rates in _rates_of_model(one).items()}
    lines, marks = [], []
    step = -(-len(one.reading.slices) // most)
    while math.gcd(step, len(fastest)) > 1:  # kinds of work take turns, and each is to be drawn
        step += 1
    for number, part in enumerate(one.reading.slices):
        if fastest[part.work] <= 0 or (number % step and not part.wrong):
            continue
        y = _y(part.rate / fastest[part.work], 0.0, _HIGHEST)
        x = [round(SIDE * axis.at(began + part.began_s + seconds)) for seconds in (0.0, part.seconds)]
        lines.append(f"M{x[0]} {y}H{max(x[0] + 1, x[1])}")
        if part.wrong:
            marks.append(f"M{x[0]} {y}h0")
    return Panel("rate", "100 %", round(100 - 100 / _HIGHEST, 1), "0", "".join(lines), "".join(marks[:most]))


def _rates_of_model(one: GpuLoad) -> dict[str, list[float]]:
    """Return the rates of all slices of a GPU and its twins, by kind of work."""
    from gpudiag.probes.under_load import by_work

    slices = (part for reading in (one.reading, *one.twins) for part in reading.slices)
    return {work: [part.rate for part in parts] for work, parts in by_work(slices).items()}


def _fastest_tenth(rates: list[float]) -> float:
    """Return the lowest rate of the fastest tenth, which has one at least."""
    return sorted(rates)[-1 - (len(rates) - 1) // 10]


@dataclass(frozen=True)
class _Quantity:
    """A quantity that NVML reports."""

    name: str
    unit: str
    value: Callable[[HealthSample], float | None]
    lowest: float = 0.0
    """The value at the bottom."""
    extreme: Callable[[Iterable[tuple[float, float]]], tuple[float, float]] = max
    """Chooses the value to draw, with its time, where there are more samples than points."""


_QUANTITIES = (
    _Quantity("clock", "MHz", lambda sample: sample.clock_mhz, extreme=min),
    _Quantity("temperature", "°C", lambda sample: sample.temperature, _COLDEST),
    _Quantity("power", "W", lambda sample: sample.power_watts),
)


def _panel(quantity: _Quantity, samples: Sequence[HealthSample], axis: _Axis, most: int) -> Panel | None:
    """Return the panel of a quantity; None if NVML reports no value of it."""
    points = [(quantity.value(sample), sample.at_s) for sample in samples]
    known = [value for value, _ in points if value is not None]
    if not known:
        return None
    highest, lowest = max(known), quantity.lowest
    top = lowest + max(highest - lowest, 1) * _HEADROOM
    step = -(-len(points) // most)
    parts, is_drawn = [], False
    for at in range(0, len(points), step):
        group = [(value, seconds) for value, seconds in points[at : at + step] if value is not None]
        if group:
            value, seconds = quantity.extreme(group)
            x, y = round(SIDE * axis.at(seconds)), _y(value, lowest, top)
            parts.append(f"{'L' if is_drawn else 'M'}{x} {y}")
        is_drawn = bool(group)
    down = round(100 * _y(highest, lowest, top) / SIDE, 1)
    return Panel(quantity.name, f"{highest:.0f} {quantity.unit}", down, f"{lowest:.0f}", "".join(parts))


def _y(value: float, lowest: float, highest: float) -> int:
    part = (value - lowest) / (highest - lowest)
    return round(SIDE * (1 - min(1.0, max(0.0, part))))


def _throttled(samples: Sequence[HealthSample], axis: _Axis) -> Iterator[Span]:
    """Yield when the clocks were lowered, joined where samples follow each other."""
    every = load.period(samples)
    spans: list[list[float]] = []
    for sample in samples:
        if sample.throttled_by:
            begins = sample.at_s - every
            if spans and begins <= spans[-1][1] + every / 2:
                spans[-1][1] = sample.at_s
            else:
                spans.append([begins, sample.at_s])
    for begins, ends in spans:
        yield axis.span(begins, ends, f"clocks lowered for {ends - begins:.0f} s")


@dataclass(frozen=True)
class LinkCell:
    """A link in the heat map."""

    text: str
    heat: int
    """From 0, much slower than the others, to 4."""
    wrong: str
    """The wrong elements; "" if there are none."""


_HEATS = (0.5, 0.75, 0.9, 1.1)
"""Between the steps of the heat map, parts of the median."""


def heat_map(report: Report) -> tuple[tuple[str, ...], tuple[tuple[str, tuple[LinkCell | None, ...]], ...]] | None:
    """Return the headings of the heat map, and its lines: from each GPU to each other one; None without links.

    Of more than :data:`MOST_IN_MATRIX` GPUs, the slowest links have a line each.
    """
    known = load.links(report)
    if not known:
        return None
    usual = load.middle(known)
    ends = sorted({gpu.index for link in known for gpu in (link.source, link.target)})
    if len(ends) > MOST_IN_MATRIX:
        slowest = sorted(known, key=lambda link: link.rate)[:_LISTED]
        return ("rate",), tuple(
            (f"GPU {link.source.index} to GPU {link.target.index}", (_cell(link, usual),)) for link in slowest
        )
    cells = {(link.source.index, link.target.index): _cell(link, usual) for link in known}
    return tuple(f"to GPU {target}" for target in ends), tuple(
        (f"GPU {source}", tuple(cells.get((source, target)) for target in ends)) for source in ends
    )


def _cell(link: Link, usual: float) -> LinkCell:
    share = link.rate / usual if usual > 0 else 0.0
    rate = load.percent(share) if link.source.simulated else f"{load.number(link.rate / 1e9)} {load.BYTES}"
    wrong = f"{link.wrong:,} wrong" if link.wrong else ""
    return LinkCell(rate, sum(share >= step for step in _HEATS), wrong)
