"""Computes pictures for the template: positions on a drawing, in percent of its width and height.

Percentages are used because a drawing scaled as a whole has unreadable letters on a telephone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpudiag.model.report import Limit, Report, Row, Timeline
from gpudiag.text import one_line

MIB = 1 << 20
SIDE = 1000
"""The side of the square in which the lines of a chart are drawn."""
_HEADROOM = 1.15
_FAR = 4
_TICKS = 4
_APART = 7.0
"""The percentage of the height that a label needs."""
MOST_POINTS = 5000
"""The most points of all charts of a page together."""
_LEAST_POINTS, _MOST_LOOKS = 12, 12


@dataclass(frozen=True)
class Label:
    """A label, with its distance from the top in percent."""

    text: str
    y: float


@dataclass(frozen=True)
class Course:
    """The memory in use on one GPU, as a line."""

    name: str
    path: str
    """The line as a path of SVG, in a square of :data:`SIDE`."""
    looks: str
    """The points at which the probe itself read the memory: an SVG path of lines without length, drawn as dots."""
    style: str
    """The CSS classes of the line's colour and dashes."""


@dataclass(frozen=True)
class Chart:
    """Memory over time."""

    title: str
    text: str
    """A description of the chart, in words."""
    seconds: str
    ticks: tuple[Label, ...]
    limits: tuple[Label, ...]
    courses: tuple[Course, ...]
    legend: tuple[tuple[str, str], ...]
    """The name and the style of each line, once; empty if the title says it."""


Points = Sequence[tuple[float, int]]
"""Points of a course: seconds, and the bytes in use from then on."""
COLORS, DASHES = 8, 4
"""The colours of the style sheet, and the ways to draw a line: by both together 32 GPUs can be told apart."""


def chart(
    title: str,
    courses: Sequence[tuple[str, Points, Sequence[float], int]],
    limits: Iterable[tuple[str, int]],
    seconds: float,
    *,
    far: bool = False,
    most: int = 400,
) -> Chart:
    """Return the chart of several courses: the name of each, its points, the times of the probe's own readings, and
    the number of its GPU.

    A limit far above the memory in use would flatten the course: unless ``far``, it is named in the text and not drawn.
    """
    limits = list(dict.fromkeys(limits))
    most_used = max((used for _, points, *_ in courses for _, used in points), default=0)
    drawn = [(name, most) for name, most in limits if far or most <= _FAR * most_used]
    top = _HEADROOM * max([most_used, *(size for _, size in drawn), MIB])
    seconds = max([seconds, *(at for _, points, *_ in courses for at, _ in points)], default=0.0) or 1.0
    lines = tuple(
        _course(name, _thinned(points, most), looks, seconds, top, style=_style(number))
        for name, points, looks, number in courses
    )
    highest = f"at most {size(most_used)} in use, {seconds:.1f} s"
    near = [f"limit {size(number)}: {name}" for name, number in drawn]
    above = [f"far above it: {name}, {size(number)}" for name, number in limits if (name, number) not in drawn]
    return Chart(
        title=title,
        text="; ".join([highest, *near, *above]),
        seconds=f"{seconds:.1f} s",
        ticks=tuple(Label(size(number), _down(number, top)) for number in _ticks(top)),
        limits=_spread(Label(f"limit {size(number)}", _down(number, top)) for _, number in drawn),
        courses=lines,
        legend=tuple({line.name: line.style for line in lines if line.name != title}.items()),
    )


def _style(number: int) -> str:
    """Return the style of a GPU's line; neighbours differ in colour and in dashes."""
    return f"c{number % COLORS} d{(number + number // COLORS) % DASHES}"


def _course(name: str, points: Points, looks: Sequence[float], seconds: float, top: float, *, style: str) -> Course:
    parts = []
    for number, (at, used) in enumerate(points):
        x, y = _at(at, used, seconds, top)
        parts.append(f"M{x} {y}" if number == 0 else f"H{x}V{y}")
    seen = []
    for look in list(looks)[:_MOST_LOOKS]:
        used = next((used for at, used in reversed(points) if at <= look), points[0][1] if points else 0)
        x, y = _at(look, used, seconds, top)
        seen.append(f"M{x} {y}h0")
    return Course(name, "".join([*parts, f"H{SIDE}"]) if parts else "", "".join(dict.fromkeys(seen)), style)


def _at(seconds: float, used: int, all_seconds: float, top: float) -> tuple[int, int]:
    return round(SIDE * seconds / all_seconds), round(SIDE * _down(used, top) / 100)


def _thinned(points: Points, most: int) -> Points:
    """Return at most this many points; of neighbouring ones the one with the most memory in use."""
    if len(points) <= most:
        return points
    step = -(-len(points) // most)
    return [max(points[at : at + step], key=lambda point: point[1]) for at in range(0, len(points), step)]


def _spread(marks: Iterable[Label]) -> tuple[Label, ...]:
    """Return the marks with overlapping labels joined into one."""
    labels: list[Label] = []
    for mark in marks:
        near = next((other for other in labels if abs(other.y - mark.y) < _APART), None)
        if near is None:
            labels.append(mark)
        elif mark.text not in near.text:
            labels[labels.index(near)] = Label(f"{near.text}; {mark.text}", near.y)
    return tuple(labels)


def _ticks(top: float) -> list[int]:
    """Return round numbers of bytes from 0 to ``top``."""
    step = MIB
    while step * _TICKS < top:
        step *= 2
    return list(range(0, int(top) + 1, step))


def _down(number: float, top: float) -> float:
    return round(100 - 100 * number / top, 1)


def size(number: float) -> str:
    """Return a number of bytes in a few characters."""
    if number >= 10 << 30:
        return f"{number / (1 << 30):,.0f} GiB"
    if number >= 2 << 30:
        return f"{number / (1 << 30):.1f} GiB"
    return f"{number / MIB:,.0f} MiB" if number >= MIB or not number else f"{number / 1024:,.1f} KiB"


def of_probe(report: Report, rows: Sequence[Row]) -> Chart | None:
    """Return the memory over time of one probe on all its GPUs; None if nothing was recorded."""
    gpus = {gpu.uuid: gpu for gpu in report.gpus}
    courses: list[tuple[str, Points, Sequence[float], int]] = []
    limits: dict[tuple[str, int], None] = {}
    seconds = 0.0
    for row in rows:
        for line in row.timelines:
            if not line.samples:
                continue
            known = gpus.get(line.gpu)
            name = f"GPU {known.index}" if known else one_line(line.gpu)[:40]
            looks = [look / 1000 for look in line.looks]
            courses.append((name, _points(line), looks, known.index if known else len(courses)))
            seconds = max(seconds, line.seconds)
        for limit in _limits(row):
            limits[one_line(limit.name)[:60], limit.bytes] = None
    lines = sum(len(row.timelines) for row in report.rows)
    most = max(_LEAST_POINTS, MOST_POINTS // max(lines, 1))
    return chart(one_line(rows[0].probe), courses, list(limits)[:6], seconds, most=most) if courses else None


def _points(line: Timeline) -> Points:
    first = line.samples[0][1]
    return [(0.0, first), *((at / 1000, used) for at, used in line.samples)]


def _limits(row: Row) -> tuple[Limit, ...]:
    return getattr(row.outcome, "limits", ())


@dataclass(frozen=True)
class Bar:
    """A row of the report as a bar on a device's time line, in percent."""

    x: float
    width: float
    lane: int
    status: str
    text: str


@dataclass(frozen=True)
class Lanes:
    """The probes of one device during the run."""

    name: str
    bars: tuple[Bar, ...]
    count: int
    """The number of lanes: as many as probes ran at the same time."""


def run_timeline(report: Report) -> tuple[Lanes, ...]:
    """Return when each probe ran, by device; empty if the report lacks the times."""
    rows = sorted((row for row in report.rows if row.began_s is not None), key=lambda row: row.began_s or 0.0)
    total = max([report.duration_s, *((row.began_s or 0.0) + row.duration_s for row in rows)], default=0.0)
    if not rows or total <= 0:
        return ()
    names = [("", "CPU and host"), *((gpu.uuid, f"GPU {gpu.index}") for gpu in report.gpus)]
    return tuple(
        lanes
        for uuid, name in names
        if (lanes := _lanes(name, [row for row in rows if (uuid in row.devices if uuid else not row.devices)], total))
    )


def _lanes(name: str, rows: list[Row], total: float) -> Lanes | None:
    free: list[float] = []
    """The time at which the last bar of each lane ends."""
    bars = []
    for row in rows:
        began = row.began_s or 0.0
        lane = next((number for number, end in enumerate(free) if end <= began + 0.002), len(free))
        free[lane : lane + 1] = [began + row.duration_s]
        text = f"{one_line(row.probe)}: {row.status}, {row.duration_s:.2f} s from {began:.1f} s"
        bars.append(
            Bar(
                round(100 * began / total, 2), max(0.15, round(100 * row.duration_s / total, 2)), lane, row.status, text
            )
        )
    return Lanes(name, tuple(bars), len(free)) if bars else None
