"""The probes on the page: the matrix of their outcomes, and their findings. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from gpudiag import catalogue
from gpudiag.errors import CatalogueError
from gpudiag.fix import Action, Shown, shown
from gpudiag.knowledge.placement import created_devices
from gpudiag.model.reading import plain_reading
from gpudiag.model.report import Finding, Interrupted, Judged, Report, Row, Skipped
from gpudiag.probes import listing
from gpudiag.probes.common import ceilings_mib
from gpudiag.report import words
from gpudiag.report.page import pictures
from gpudiag.report.page.room import MOST_ITEMS, MOST_ROWS, MOST_TEXT, Room, Rooms
from gpudiag.text import counted, one_line, plain

_LOG_LINES = 40
_MOST_FIGURES = 60
_WRONG = ("broken", "fail", "warning")
_WORST = (*_WRONG, "interrupted", "note", "pass", "skipped")


@dataclass(frozen=True)
class Cell:
    """An outcome in the matrix."""

    status: str
    columns: int = 1


@dataclass(frozen=True)
class PageFinding:
    """A finding, with the devices that have it."""

    severity: str
    kind: str
    message: str
    advice: str
    devices: str
    fix: tuple[Shown, ...]
    """The actions of the advice; empty if the finding is accepted."""


@dataclass(frozen=True)
class PageRow:
    """One row of a probe."""

    device: str
    status: str
    figure: str
    seconds: str
    operations: str


@dataclass
class ProbeSection:
    """A probe: its description and its rows."""

    anchor: str
    name: str
    area: str
    status: str
    """The worst status of its rows."""
    statuses: str
    cells: tuple[Cell | None, ...]
    figure: str
    summary: str
    prose: tuple[tuple[str, tuple[str, ...]], ...]
    ran: tuple[PageRow, ...]
    found: tuple[PageFinding, ...]
    devices: tuple[tuple[str, tuple[str, ...]], ...]
    """The logical devices in each GPU, if it had several."""
    tables: tuple[tuple[str, tuple[tuple[str, ...], ...]], ...]
    figures: tuple[tuple[str, tuple[str, ...]], ...]
    """The values by name: one for all devices, or one for each."""
    columns: tuple[str, ...]
    log: tuple[tuple[str, str], ...]
    is_open: bool = field(default=False)

    @property
    def is_wrong(self) -> bool:
        """True if the probe did not pass; the page folds the others."""
        return self.status in _WRONG


def columns(report: Report) -> tuple[str, ...]:
    """Return the headings of the matrix."""
    return ("host", *(f"GPU {gpu.index}" for gpu in report.gpus))


def sections(report: Report) -> tuple[ProbeSection, ...]:
    """Return the probes in the order of the report."""
    groups: dict[str, list[Row]] = {}
    for row in report.rows[:MOST_ROWS]:
        groups.setdefault(row.probe, []).append(row)
    rooms = Rooms()
    areas = list(report.areas)
    ordered = sorted(groups.items(), key=lambda item: areas.index(item[1][0].area))
    anchors = Counter[str]()
    probe_sections = tuple(_section(report, rows, _anchor(name, anchors), rooms) for name, rows in ordered)
    _open_first(probe_sections)
    return probe_sections


def folded(sections: Sequence[ProbeSection]) -> str:
    """Return the heading of sections that are folded: ``9 probes: 8 pass, 1 skipped``."""
    counts = Counter(section.status for section in sections)
    return f"{counted(len(sections), 'probe')}: {', '.join(f'{number} {status}' for status, number in counts.items())}"


def _open_first(sections: Iterable[ProbeSection]) -> None:
    """Open the sections of probes that did not pass, but of several with the same finding only the first."""
    seen = set[object]()
    for section in sections:
        same = tuple(finding.message for finding in section.found) or section.figure
        section.is_open = section.is_wrong and same not in seen
        seen.add(same)


def _anchor(name: str, taken: Counter[str]) -> str:
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:60] or "probe"
    taken[slug] += 1
    return f"probe-{slug}" if taken[slug] == 1 else f"probe-{slug}--{taken[slug]}"


def _section(report: Report, rows: list[Row], anchor: str, rooms: Rooms) -> ProbeSection:
    statuses = sorted({row.status for row in rows}, key=_WORST.index)
    worst = next(row for row in rows if row.status == statuses[0])
    summary, prose = _documentation(rows[0].probe)
    wrong = statuses[0] in _WRONG
    names, values = _figures(report, rows, rooms.figures)
    return ProbeSection(
        anchor=anchor,
        name=one_line(rows[0].probe)[:120],
        area=one_line(rows[0].area)[:60],
        status=statuses[0],
        statuses=" ".join(statuses),
        cells=_cells(report, rows),
        figure=words.figure(worst)[:200],
        summary=summary,
        prose=prose,
        ran=tuple(
            PageRow(
                report.device_label(row) or "none",
                row.status,
                rooms.texts.cut(words.figure(row), 400),
                words.seconds(row),
                rooms.texts.cut(words.evidence(row), 600),
            )
            for row in rows
        ),
        found=_found(report, rows, rooms.texts),
        devices=tuple(pair for row in rows for pair in _inside(report, row)),
        tables=_tables(report, rows, rooms.figures),
        figures=values,
        columns=names,
        log=_log(report, rows, rooms.logs) if wrong else (),
    )


def _documentation(name: str) -> tuple[str, tuple[tuple[str, tuple[str, ...]], ...]]:
    """Return a probe's own documentation; nothing for a probe that this gpudiag does not have."""
    if name not in listing.names():
        return "", ()
    try:
        text = catalogue.documentation(catalogue.get(name).module)
    except CatalogueError:
        return "", ()
    parts = catalogue.sections(text).items()
    return text.partition("\n")[0], tuple((head, _paragraphs(body)) for head, body in parts)


def _paragraphs(text: str) -> tuple[str, ...]:
    return tuple(" ".join(part.split()) for part in re.split(r"\n\s*\n", text) if part.strip())


def _cells(report: Report, rows: list[Row]) -> tuple[Cell | None, ...]:
    """Return the cells of a line of the matrix; None: the probe has no row for this column."""
    numbers = {gpu.uuid: number for number, gpu in enumerate(report.gpus, start=1)}
    cells: dict[int, Cell] = {}
    for row in rows:
        at = sorted(numbers[uuid] for uuid in row.devices if uuid in numbers) or [0]
        together = at == list(range(at[0], at[0] + len(at)))
        for column in at[:1] if together else at:
            cell = Cell(row.status, len(at) if together else 1)
            if column not in cells or _WORST.index(row.status) < _WORST.index(cells[column].status):
                cells[column] = cell
    found: list[Cell | None] = []
    column = 0
    while column <= len(report.gpus):
        merged = cells.get(column)
        # Rows on all GPUs and on one of them, of the same probe: each then has its own cell.
        if merged is not None and any(other in cells for other in range(column + 1, column + merged.columns)):
            merged = Cell(merged.status)
        found.append(merged)
        column += merged.columns if merged is not None else 1
    return tuple(found)


def _found(report: Report, rows: list[Row], room: Room) -> tuple[PageFinding, ...]:
    groups: dict[tuple[str, str, str, str], list[tuple[Finding, str]]] = {}
    for row in rows:
        for finding in row.findings[:MOST_ITEMS]:
            key = (
                finding.severity.value,
                one_line(finding.kind)[:80],
                one_line(finding.message),
                words.advice(finding),
            )
            groups.setdefault(key, []).append((finding, report.device_label(row)))
    return tuple(
        PageFinding(
            severity,
            kind,
            room.cut(message),
            room.cut(advice),
            "" if len(rows) == 1 else ", ".join(device for _, device in same),
            () if same[0][0].accepted else cut_fix(same[0][0].fix),
        )
        for (severity, kind, message, advice), same in list(groups.items())[:MOST_ITEMS]
    )


def cut_fix(actions: Iterable[Action]) -> tuple[Shown, ...]:
    """Return the first actions of a fix, each on one line."""
    cut = (
        action.replaced(command=one_line(action.command)[:MOST_TEXT], note=one_line(action.note)[:MOST_TEXT])
        for action in islice(actions, MOST_ITEMS)
    )
    return tuple(shown(cut))


def _inside(report: Report, row: Row) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the GPUs in which a probe had several logical devices, with these devices."""
    made, sizes = created_devices(row.log), ceilings_mib(row.log)
    for gpu in report.gpus:
        inside = tuple(
            f"{device} {sizes[device]:,} MiB" if device in sizes else device
            for device, bus_id in made.items()
            if bus_id == gpu.pci_bus_id
        )
        if len(inside) > 1:
            yield f"GPU {gpu.index}", inside


def _tables(report: Report, rows: list[Row], room: Room) -> tuple[tuple[str, tuple[tuple[str, ...], ...]], ...]:
    """Return the tables of a probe, one for all devices with equal tables."""
    tables: dict[tuple[tuple[str, ...], ...], list[str]] = {}
    for row in rows:
        if isinstance(row.outcome, Judged) and row.outcome.table and room.left > 0:
            cells = tuple(tuple(room.cut(one_line(cell), 200) for cell in line) for line in row.outcome.table[:100])
            tables.setdefault(cells, []).append(report.device_label(row))
    return tuple((", ".join(names), cells) for cells, names in tables.items())


def _figures(
    report: Report, rows: list[Row], room: Room
) -> tuple[tuple[str, ...], tuple[tuple[str, tuple[str, ...]], ...]]:
    """Return columns and lines of the measured figures; if all devices agree there is one value."""
    measured = [(report.device_label(row), dict(_flat(_without_slices(row)))) for row in rows if row.reading]
    if not measured or room.left <= 0:
        return (), ()
    names = list(dict.fromkeys(name for _, values in measured for name in values))[:_MOST_FIGURES]
    lines = []
    for name in names:
        values = [values.get(name, "none") for _, values in measured]
        shown = values[:1] if len(set(values)) == 1 else values
        lines.append((room.cut(name, 120), tuple(room.cut(value, 160) for value in shown)))
    return tuple(label for label, _ in measured), tuple(lines)


def _without_slices(row: Row) -> dict[str, Any]:
    """Return the reading of a row without the hundreds of slices of a load, which are drawn."""
    return {name: value for name, value in (plain_reading(row.reading) or {}).items() if name != "slices"}


def _flat(value: Any, name: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    """Yield each figure of a reading with its path, such as ``pool.first.used_bytes``."""
    if isinstance(value, dict) and value and depth < 6:
        for key, item in list(value.items())[:_MOST_FIGURES]:
            yield from _flat(item, f"{name}.{one_line(str(key))}".removeprefix("."), depth + 1)
    elif isinstance(value, list | tuple) and any(isinstance(item, dict | list | tuple) for item in value) and depth < 6:
        for number, item in enumerate(value[:_MOST_FIGURES]):
            yield from _flat(item, f"{name}[{number}]", depth + 1)
    else:
        yield name, _value(name, value)


def _value(name: str, value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and name.endswith("bytes"):
        return pictures.size(value)
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple | dict):
        return ", ".join(one_line(str(item))[:160] for item in list(value)[:20]) or "none"
    return one_line(str(value)[:MOST_TEXT]) or '""'


def _log(report: Report, rows: list[Row], room: Room) -> tuple[tuple[str, str], ...]:
    """Return the last log lines of probes that did not pass."""
    logs = []
    for row in rows:
        if row.status in _WRONG and row.log and room.left > 0:
            lines = (line.rstrip() for text in row.log[-_LOG_LINES:] for line in plain(text[-MOST_TEXT:]).splitlines())
            logs.append((report.device_label(row) or "log", room.cut("\n".join(lines), 6000)))
    return tuple(logs)


def skipped_reasons(report: Report) -> tuple[tuple[str, str, tuple[str, ...]], ...]:
    """Return the reasons why probes were skipped or interrupted, each once, after the word for it."""
    reasons: dict[tuple[str, str], dict[str, None]] = {}
    for row in report.rows[:MOST_ROWS]:
        if isinstance(row.outcome, Skipped | Interrupted):
            reasons.setdefault((row.status, words.figure(row)), {})[one_line(row.probe)[:120]] = None
    return tuple((status, reason, tuple(names)) for (status, reason), names in reasons.items())
