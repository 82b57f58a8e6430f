"""What the page shows of a report, as records that the template only has to write down. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from markupsafe import escape

from gpudiag import catalogue
from gpudiag.errors import CatalogueError
from gpudiag.knowledge.placement import created_devices
from gpudiag.model.diagnosis import RootCause, Step
from gpudiag.model.facts import NvmlDevice, Unknown
from gpudiag.model.program import Placed, place
from gpudiag.model.report import STATUSES, Broken, Judged, Report, Row, Skipped, Verdict
from gpudiag.probes import listing
from gpudiag.probes.common import ceilings_mib
from gpudiag.report import accounts, changes, program, words
from gpudiag.report.page import pictures
from gpudiag.text import counted, one_line, plain

MOST_ROWS = 2000
"""A report has some hundreds."""
MOST_TEXT = 1200
"""Characters of a text, such as a message."""
_TEXT_ROOM, _FIGURES_ROOM, _LOG_ROOM, _LINES_ROOM, _PAIRS_ROOM = 120_000, 120_000, 60_000, 30_000, 70_000
"""Bytes of all findings, figures and logs of the probes, of the program's log, and of all else: together they leave
enough of a megabyte for what says so."""
_LOG_LINES = 40
_PROGRAM_LINES = 400
_MOST_FIGURES = 60
_MOST_ITEMS = 40
_COMMAND = re.compile(r"^(?P<text>.*): (?P<command>gpudiag .*)$", re.DOTALL)
_WORST = ("broken", "fail", "warning", "note", "pass", "skipped")
_OPERATIONS = 5
_DEEPEST = 12
"""PCI bridges above a GPU."""


@dataclass
class Room:
    """Bytes that are left for what could be of any length, so that the page stays small."""

    left: int

    def cut(self, text: str, most: int = MOST_TEXT) -> str:
        """Return ``text``, cut if it is longer than ``most`` characters or if no room is left."""
        shown = text[:most]
        if (size := _size(shown)) > self.left:
            shown = shown[: len(shown) * max(self.left, 0) // size]
        self.left -= _size(shown)
        rest = len(text) - len(shown)
        return f"{shown}… ({rest:,} more characters in the JSON)" if rest and shown else shown or ("…" if text else "")


def _size(text: str) -> int:
    """Return how many bytes a text has in the page."""
    return len(escape(text).encode(errors="replace"))


def room() -> Room:
    """Return the room for what the template itself lists."""
    return Room(_PAIRS_ROOM)


@dataclass
class Rooms:
    """The rooms of the sections."""

    texts: Room = field(default_factory=lambda: Room(_TEXT_ROOM))
    figures: Room = field(default_factory=lambda: Room(_FIGURES_ROOM))
    logs: Room = field(default_factory=lambda: Room(_LOG_ROOM))


@dataclass(frozen=True)
class Answer:
    """The first screen: is this machine fine; if not, why."""

    mark: str
    """The verdict in a word."""
    status: str
    """The class of its colour."""
    sentence: str
    why: str
    next_text: str = ""
    next_command: str = ""


@dataclass(frozen=True)
class CauseCard:
    """A cause, what shows it, and what to type."""

    sentence: str
    name: str
    sure: str
    seen: tuple[str, ...]
    fix: tuple[str, ...]
    tried: str
    url: str


@dataclass(frozen=True)
class Cell:
    """An outcome in the matrix."""

    status: str
    columns: int = 1


@dataclass(frozen=True)
class Found:
    """A finding, and the devices on which it was made."""

    severity: str
    kind: str
    message: str
    advice: str
    devices: str


@dataclass(frozen=True)
class Ran:
    """One row of a probe."""

    device: str
    status: str
    figure: str
    seconds: str
    operations: str


@dataclass
class Section:
    """A probe: what it does, and what came of it."""

    anchor: str
    name: str
    area: str
    status: str
    """The worst of its rows."""
    statuses: str
    cells: tuple[Cell | None, ...]
    figure: str
    summary: str
    prose: tuple[tuple[str, tuple[str, ...]], ...]
    ran: tuple[Ran, ...]
    found: tuple[Found, ...]
    devices: tuple[tuple[str, tuple[str, ...]], ...]
    """GPU to the logical devices in it, if it had several."""
    tables: tuple[tuple[str, tuple[tuple[str, ...], ...]], ...]
    figures: tuple[tuple[str, tuple[str, ...]], ...]
    """Name to value, one of all devices or one of each."""
    columns: tuple[str, ...]
    log: tuple[tuple[str, str], ...]
    is_open: bool = field(default=False)


@dataclass(frozen=True)
class Share:
    """A part of a GPU's memory, in percent."""

    x: float
    width: float
    kind: str
    text: str


@dataclass(frozen=True)
class GpuBox:
    """A GPU in the picture of the machine."""

    name: str
    title: str
    pci: str
    facts: tuple[tuple[str, str], ...]
    shares: tuple[Share, ...]
    memory: str
    holders: tuple[str, ...]
    devices: tuple[str, ...]


@dataclass(frozen=True)
class Bus:
    """A part of the PCI tree: what is directly on it, and the parts below it."""

    name: str
    boxes: tuple[GpuBox, ...]
    below: tuple[Bus, ...] = ()


@dataclass(frozen=True)
class Counted:
    """A bar with its label; ``share`` in percent of the longest."""

    name: str
    text: str
    share: float
    number: str


# --- the first screen


def answer(report: Report) -> Answer:
    """Return what the page says first."""
    why = words.headline(report)
    if report.program is not None:
        found = bool(report.diagnosis.causes)
        return Answer("program", "warning" if found else "pass", why, "")
    if report.is_log_alone:
        causes = report.diagnosis.causes
        sentence = why.removesuffix(one_line(causes[0].cause)).rstrip(": ") if causes else why or words.NO_CAUSE
        return Answer("log", "fail" if causes else "skipped", sentence, "")
    text = words.next_step(report)
    command = ""
    if match := _COMMAND.match(text):
        text, command = f"{match['text']}:", match["command"]
    status, sentence = _verdict(report)
    return Answer(words.verdict(report), status, sentence, why, text, command)


def _verdict(report: Report) -> tuple[str, str]:
    counts = report.counts
    if report.verdict is Verdict.PASS:
        warned = counts.get("warning", 0)
        rest = f", with {counted(warned, 'warning')}" if warned else ""
        return "pass", f"This machine is fine{rest}"
    if report.verdict is Verdict.FAIL:
        number = sum(any(one.severity in report.limits.failing for one in row.findings) for row in report.rows)
        return "fail", f"This machine is not fine: {counted(number, 'check')} failed"
    if report.verdict is Verdict.BROKEN:
        number = counts.get("broken", 0)
        return (
            "broken",
            f"Not known: {counted(number, 'probe')} gave no result" if number else "Not known: gpudiag broke",
        )
    if report.facts.without_gpu and not report.gpus:
        return "skipped", "Nothing was verified: there is no NVIDIA GPU"
    return "skipped", "Not verified: a GPU was not shown to work"


def cause_cards(causes: Iterable[RootCause]) -> tuple[CauseCard, ...]:
    """Return the causes of the diagnosis."""
    return tuple(
        CauseCard(
            sentence=one_line(one.cause)[:MOST_TEXT],
            name=one_line(one.rule)[:80],
            sure=one.sure.value,
            seen=tuple(one_line(text)[:MOST_TEXT] for text in one.evidence[:_MOST_ITEMS]),
            fix=tuple(one_line(text)[:MOST_TEXT] for text in one.fix[:_MOST_ITEMS]),
            tried=_tried(one),
            url=one.url if re.fullmatch(r"https://[\w./#?=&%:+,~-]+", one.url, re.ASCII) else "",
        )
        for one in causes
    )


def _tried(one: RootCause) -> str:
    if one.trial is None or one.trial.outcome == "not tried":
        return ""
    line = f"{one_line(one.trial.line)}: " if one.trial.line else ""
    return one_line(f"Tried here: {line}{one.trial.outcome}{f' ({one.trial.detail})' if one.trial.detail else ''}")


def worst_findings(sections: Iterable[Section]) -> tuple[tuple[Section, Found], ...]:
    """Return the first findings that fail, each once, for a report whose diagnosis names no cause."""
    seen: dict[str, tuple[Section, Found]] = {}
    for section in sections:
        for one in section.found:
            if one.severity == "fail":
                seen.setdefault(one.message, (section, one))
    return tuple(seen.values())[:3]


def steps(report: Report) -> tuple[Step, ...]:
    """Return the stages of TensorFlow's way to a GPU, if they say anything of this machine."""
    known = any(step.status in ("ok", "failed") for step in report.diagnosis.steps)
    return report.diagnosis.steps if known and report.program is None and not report.is_log_alone else ()


def since(report: Report) -> tuple[str, tuple[str, ...]] | None:
    """Return what changed since the report that this one was compared with."""
    if report.since is None:
        return None
    heading, lines = changes.in_head(report.since)
    return heading, tuple(lines)


# --- the probes


def columns(report: Report) -> tuple[str, ...]:
    """Return the headings of the matrix."""
    return ("host", *(f"GPU {gpu.index}" for gpu in report.gpus))


def sections(report: Report) -> tuple[Section, ...]:
    """Return the probes in the order of the report."""
    groups: dict[str, list[Row]] = {}
    for row in report.rows[:MOST_ROWS]:
        groups.setdefault(row.probe, []).append(row)
    rooms = Rooms()
    areas = list(report.areas)
    ordered = sorted(groups.items(), key=lambda item: areas.index(item[1][0].area))
    anchors = Counter[str]()
    found = tuple(_section(report, rows, _anchor(name, anchors), rooms) for name, rows in ordered)
    _open_first(found)
    return found


def _open_first(sections: Iterable[Section]) -> None:
    """Open what did not pass, but of several probes that found the same only the first."""
    seen = set[object]()
    for section in sections:
        same = tuple(one.message for one in section.found) or section.figure
        section.is_open = section.status in ("broken", "fail", "warning") and same not in seen
        seen.add(same)


def _anchor(name: str, taken: Counter[str]) -> str:
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:60] or "probe"
    taken[slug] += 1
    return f"probe-{slug}" if taken[slug] == 1 else f"probe-{slug}--{taken[slug]}"


def _section(report: Report, rows: list[Row], anchor: str, rooms: Rooms) -> Section:
    statuses = sorted({row.status for row in rows}, key=_WORST.index)
    worst = next(row for row in rows if row.status == statuses[0])
    summary, prose = _documentation(rows[0].probe)
    wrong = statuses[0] in ("broken", "fail", "warning")
    names, values = _figures(report, rows, rooms.figures)
    return Section(
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
            Ran(
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
    """Return what a probe says of itself; nothing for one that this gpudiag does not have."""
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
        one = cells.get(column)
        # Rows on all GPUs and on one of them, of the same probe: each then has its own cell.
        if one is not None and any(other in cells for other in range(column + 1, column + one.columns)):
            one = Cell(one.status)
        found.append(one)
        column += one.columns if one is not None else 1
    return tuple(found)


def _found(report: Report, rows: list[Row], room: Room) -> tuple[Found, ...]:
    groups: dict[tuple[str, str, str, str], list[str]] = {}
    for row in rows:
        for one in row.findings[:_MOST_ITEMS]:
            key = (one.severity.value, one_line(one.kind)[:80], one_line(one.message), one_line(one.advice))
            groups.setdefault(key, []).append(report.device_label(row))
    return tuple(
        Found(severity, kind, room.cut(message), room.cut(advice), "" if len(rows) == 1 else ", ".join(devices))
        for (severity, kind, message, advice), devices in list(groups.items())[:_MOST_ITEMS]
    )


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
    """Return the tables of a probe, one for all devices that have the same."""
    tables: dict[tuple[tuple[str, ...], ...], list[str]] = {}
    for row in rows:
        if isinstance(row.outcome, Judged) and row.outcome.table and room.left > 0:
            cells = tuple(tuple(room.cut(one_line(cell), 200) for cell in line) for line in row.outcome.table[:100])
            tables.setdefault(cells, []).append(report.device_label(row))
    return tuple((", ".join(names), cells) for cells, names in tables.items())


def _figures(
    report: Report, rows: list[Row], room: Room
) -> tuple[tuple[str, ...], tuple[tuple[str, tuple[str, ...]], ...]]:
    """Return the columns and lines of what was measured; where all devices agree there is one value."""
    measured = [(report.device_label(row), dict(_flat(row.reading))) for row in rows if row.reading]
    if not measured or room.left <= 0:
        return (), ()
    names = list(dict.fromkeys(name for _, values in measured for name in values))[:_MOST_FIGURES]
    lines = []
    for name in names:
        values = [values.get(name, "none") for _, values in measured]
        shown = values[:1] if len(set(values)) == 1 else values
        lines.append((room.cut(name, 120), tuple(room.cut(value, 160) for value in shown)))
    return tuple(label for label, _ in measured), tuple(lines)


def _flat(value: Any, name: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    """Yield each figure of a reading with its place in it, such as ``pool.first.used_bytes``."""
    if isinstance(value, dict) and value and depth < 6:
        for key, item in list(value.items())[:_MOST_FIGURES]:
            yield from _flat(item, f"{name}.{one_line(str(key))}".removeprefix("."), depth + 1)
    elif isinstance(value, list) and any(isinstance(item, dict | list) for item in value) and depth < 6:
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
    if isinstance(value, list | dict):
        return ", ".join(one_line(str(item))[:160] for item in list(value)[:20]) or "none"
    return one_line(str(value)[:MOST_TEXT]) or '""'


def _log(report: Report, rows: list[Row], room: Room) -> tuple[tuple[str, str], ...]:
    """Return the last lines that probes wrote that did not pass."""
    logs = []
    for row in rows:
        if row.status in ("broken", "fail", "warning") and row.log and room.left > 0:
            lines = (line.rstrip() for text in row.log[-_LOG_LINES:] for line in plain(text[-MOST_TEXT:]).splitlines())
            logs.append((report.device_label(row) or "log", room.cut("\n".join(lines), 6000)))
    return tuple(logs)


# --- the machine


def machine(report: Report) -> tuple[Bus, ...]:
    """Return the GPUs by PCI domain; empty if nothing is known of them."""
    made, sizes = _devices_made(report)
    boxes: dict[str, list[tuple[str, GpuBox]]] = {}
    for device in report.facts.nvml_devices:
        logical = tuple(
            f"{name} {sizes[name]:,} MiB" if name in sizes else name
            for name, bus_id in made.items()
            if bus_id == device.pci_bus_id
        )
        box = GpuBox(
            name=f"GPU {device.index}",
            title=one_line(device.name)[:120],
            pci=one_line(device.pci_bus_id)[:40],
            facts=tuple(_state(report, device)),
            shares=tuple(_shares(device)),
            memory=_memory(device),
            holders=tuple(_holders(device)),
            devices=logical,
        )
        boxes.setdefault(box.pci[:4], []).append((box.pci, box))
    nodes = report.facts.device_nodes
    if not isinstance(nodes, Unknown):
        known = {device.pci_bus_id for device in report.facts.nvml_devices}
        others = {**dict.fromkeys(nodes.pci_gpus, "NVIDIA"), **nodes.other_gpus}
        for bus_id, maker in others.items():
            if bus_id not in known:
                driver = nodes.bound.get(bus_id, "")
                facts = (("driver", one_line(driver)[:40]),) if driver else ()
                title = f"{one_line(maker)[:40]}, not reported by NVML" if maker == "NVIDIA" else one_line(maker)[:40]
                box = GpuBox("GPU", title, one_line(bus_id)[:40], facts, (), "", (), ())
                boxes.setdefault(box.pci[:4], []).append((box.pci, box))
    above = {} if isinstance(nodes, Unknown) else nodes.bridges
    return tuple(
        _tree(f"PCI domain {domain}", [(_above(above, bus_id), box) for bus_id, box in sorted(found, key=_first)])
        for domain, found in sorted(boxes.items())
    )


def _first(pair: tuple[str, GpuBox]) -> str:
    return pair[0]


def _above(bridges: dict[str, tuple[str, ...]], bus_id: str) -> tuple[str, ...]:
    return tuple(one_line(one)[:40] for one in bridges.get(bus_id, ())[:_DEEPEST])


def _tree(name: str, found: list[tuple[tuple[str, ...], GpuBox]]) -> Bus:
    """Return the tree of what is below ``name``: a bridge is shown if several GPUs are behind it, and not all."""
    groups: dict[str, list[tuple[tuple[str, ...], GpuBox]]] = {}
    for bridges, box in found:
        groups.setdefault(bridges[0] if bridges else "", []).append((bridges[1:], box))
    if len(groups) == 1 and "" not in groups:
        return _tree(name, next(iter(groups.values())))
    alone = [box for bridge, same in groups.items() for _, box in same if not bridge or len(same) == 1]
    below = [_tree(f"behind {bridge}", same) for bridge, same in groups.items() if bridge and len(same) > 1]
    return Bus(name, tuple(alone), tuple(below))


def _devices_made(report: Report) -> tuple[dict[str, str], dict[str, int]]:
    """Return the devices that TensorFlow makes by default, by the row that shows the most of them."""
    rows = [row for row in report.rows if row.area == "discovery" and row.log]
    best: tuple[dict[str, str], dict[str, int]] = ({}, {})
    for row in rows:
        made = created_devices(row.log)
        if len(made) > len(best[0]):
            best = made, ceilings_mib(row.log)
    return best


def _state(report: Report, device: NvmlDevice) -> Iterator[tuple[str, str]]:
    """Yield what matters of a GPU, in a few words each."""
    account = next((one for one in report.accounts or () if one.uuid == device.uuid), None)
    if account is not None:
        yield "account", accounts.fate(account)[:240]
    if device.compute_capability:
        yield "capability", one_line(device.compute_capability)[:20]
    state = device.state
    if state.pcie_generation is not None and state.pcie_width is not None:
        link, most = (
            f"generation {state.pcie_generation} x{state.pcie_width}",
            f"generation {state.pcie_generation_max} x{state.pcie_width_max}",
        )
        yield "PCIe", link if link == most or state.pcie_width_max is None else f"{link}; it could be {most}"
    if state.nvlinks:
        yield "NVLink", f"{sum(state.nvlinks)} of {len(state.nvlinks)} links active"
    if device.mig_mode == "enabled":
        yield "MIG", f"enabled, {counted(len(device.mig_uuids), 'instance')}"
    if state.ecc is not None:
        errors = f", {state.uncorrected_errors} uncorrected errors" if state.uncorrected_errors else ""
        yield "ECC", f"{'on' if state.ecc else 'off'}{errors}"
    if state.slowed_by:
        yield "slowed by", ", ".join(one_line(one)[:40] for one in state.slowed_by[:8])


def _shares(device: NvmlDevice) -> Iterator[Share]:
    total = device.memory_total_bytes
    if total <= 0:
        return
    x = 0.0
    booked = 0
    for process in device.processes[:_MOST_ITEMS]:
        held = max(process.used_bytes or 0, 0)
        width = min(100 * held / total, 100 - x)
        if width > 0:
            yield Share(round(x, 2), round(width, 2), "held", f"process {process.pid}: {pictures.size(held)}")
        x, booked = x + width, booked + held
    rest = min(max(device.memory_used_bytes - booked, 0) * 100 / total, 100 - x)
    if rest > 0:
        text = f"not booked on a process: {pictures.size(device.memory_used_bytes - booked)}"
        yield Share(round(x, 2), round(rest, 2), "other", text)


def _memory(device: NvmlDevice) -> str:
    if not device.memory_total_bytes:
        return "memory not known"
    return (
        f"{pictures.size(device.memory_used_bytes)} of {pictures.size(device.memory_total_bytes)} in use before the run"
    )


def _holders(device: NvmlDevice) -> Iterator[str]:
    for process in device.processes[:_MOST_ITEMS]:
        held = "memory not known" if process.used_bytes is None else pictures.size(process.used_bytes)
        holder = process.holder
        who = "" if holder is None else ": ".join(filter(None, (holder.user, holder.command)))
        yield one_line(f"{held}: process {process.pid}{f' ({who})' if who else ''}")[:300]


def peers(report: Report) -> tuple[tuple[str, ...], tuple[tuple[str, tuple[str, ...]], ...]] | None:
    """Return the headings and lines of the table of peer access; None if it is not known, or if there is one GPU."""
    known = {} if isinstance(report.facts.nvml, Unknown) else report.facts.nvml.peers
    numbers = [device.index for device in report.facts.nvml_devices][:64]
    if not known or len(numbers) < 2:
        return None

    def said(one: int, other: int) -> str:
        if one == other:
            return "self"
        return one_line(known.get(f"{min(one, other)} {max(one, other)}", "not known"))[:80]

    lines = tuple((f"GPU {one}", tuple(said(one, other) for other in numbers)) for one in numbers)
    return tuple(f"GPU {one}" for one in numbers), lines


# --- what ran where


def placements(report: Report) -> tuple[Counted, ...]:
    """Return for each device how many operations TensorFlow put on it in all probes, and which most of all."""
    on: dict[str, Counter[str]] = {}
    for row in report.rows:
        for one in row.placements:
            if one.op not in words.PLUMBING:
                on.setdefault(one_line(one.device)[:60], Counter())[one_line(one.op)[:60]] += one.count
    return _operations(on)


def placed(report: Report) -> tuple[Counted, ...]:
    """Return the same of a program that was traced."""
    on: dict[str, Counter[str]] = {}
    for one in report.program.placed if report.program else ():
        on.setdefault(one_line(one.device)[:60], Counter())[one_line(one.op)[:60]] += one.count
    return _operations(on)


def _operations(on: dict[str, Counter[str]]) -> tuple[Counted, ...]:
    most = max((ops.total() for ops in on.values()), default=0)
    found = []
    for device, ops in sorted(on.items(), key=lambda item: -item[1].total())[:_MOST_ITEMS]:
        few = ", ".join(f"{op} x{number:,}" for op, number in ops.most_common(_OPERATIONS))
        more = f" and {counted(len(ops) - _OPERATIONS, 'more type')}" if len(ops) > _OPERATIONS else ""
        found.append(Counted(device or "?", few + more, round(100 * ops.total() / most, 1), f"{ops.total():,}"))
    return tuple(found)


_FALLEN = {
    "asked": "a GPU was asked for",
    "scope": "the program asked for the CPU",
    "variable": "it follows a variable or iterator on the CPU",
    "none": "no device was asked for",
    "type": "no kernel for the GPU has this type",
    "cpu only": "there is no kernel for the GPU",
}


def fallbacks(report: Report) -> tuple[Counted, ...]:
    """Return the operations of a program that ran on the CPU, by its lines."""
    groups: dict[tuple[str, str, str], list[Placed]] = {}
    for one in report.program.placed if report.program else ():
        if one.why in _FALLEN and one.line:
            groups.setdefault((one.line, one.op, one.why), []).append(one)
    counts = {key: sum(one.count for one in same) for key, same in groups.items()}
    most = max(counts.values(), default=1)
    return tuple(
        Counted(
            one_line(place(line))[:120],
            f"{one_line(op)[:60]}: {_FALLEN[why]}",
            round(100 * counts[line, op, why] / most, 1),
            f"{counts[line, op, why]:,}",
        )
        for line, op, why in sorted(counts, key=lambda key: -counts[key])[:_MOST_ITEMS]
    )


# --- a program


def program_charts(report: Report) -> tuple[pictures.Chart, ...]:
    """Return the memory of each device of a traced program against its limit."""
    trace = report.program
    charts = []
    made = [one for one in trace.processes if one.devices] if trace else []
    for process in made[:_MOST_ITEMS]:
        for device in process.devices[:_MOST_ITEMS]:
            if device.name.startswith("GPU") and trace is not None:
                title = one_line(device.name) + (f", process {process.pid}" if len(made) > 1 else "")
                limit = [("what TensorFlow may take", device.limit_bytes)] if device.limit_bytes else []
                course = (title, [(0.0, 0), *device.samples], ())
                charts.append(pictures.chart(title, [course], limit, trace.seconds, far=True))
    return tuple(charts)


def program_sections(report: Report) -> tuple[program.Section, ...]:
    """Return what the trace says, in words, by subject."""
    return tuple(program.sections(report.program, verbose=True)) if report.program else ()


def program_lines(report: Report) -> str:
    """Return the log of the user's program, if it was given: its end, and not too much of it."""
    lines = [plain(line[:MOST_TEXT]).rstrip() for line in report.lines[-_PROGRAM_LINES:]]
    return Room(_LINES_ROOM).cut("\n".join(lines), _LINES_ROOM)


def account(report: Report) -> str:
    return accounts.summary(report)


def counts(report: Report) -> tuple[tuple[str, int], ...]:
    """Return how many rows there are of each outcome."""
    return tuple((status, report.counts[status]) for status in STATUSES if status in report.counts)


def skipped_reasons(report: Report) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return why probes were skipped, each reason once."""
    reasons: dict[str, dict[str, None]] = {}
    for row in report.rows[:MOST_ROWS]:
        if isinstance(row.outcome, Skipped | Broken) and row.status == "skipped":
            reasons.setdefault(words.figure(row), {})[one_line(row.probe)[:120]] = None
    return tuple((reason, tuple(names)) for reason, names in reasons.items())
