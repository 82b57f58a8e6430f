"""Where operations ran, and the actions of a traced program, on the page. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from gpudiag.model.program import Placed, place
from gpudiag.model.report import Report
from gpudiag.report import program, words
from gpudiag.report.page import pictures
from gpudiag.report.page.room import LINES_ROOM, MOST_ITEMS, MOST_TEXT, Room
from gpudiag.text import counted, one_line, plain

_PROGRAM_LINES = 400
_OPERATIONS = 5


@dataclass(frozen=True)
class Counted:
    """A bar with its label; ``share`` is in percent of the longest bar."""

    name: str
    text: str
    share: float
    number: str


def placements(report: Report) -> tuple[Counted, ...]:
    """Return for each device the number of operations that all probes ran on it, and the most frequent types."""
    on: dict[str, Counter[str]] = {}
    for row in report.rows:
        for placement in row.placements:
            if placement.op not in words.PLUMBING:
                on.setdefault(one_line(placement.device)[:60], Counter())[one_line(placement.op)[:60]] += (
                    placement.count
                )
    return _operations(on)


def placed(report: Report) -> tuple[Counted, ...]:
    """Return the operations of a traced program, with the devices on which they ran."""
    on: dict[str, Counter[str]] = {}
    for placement in report.program.placed if report.program else ():
        on.setdefault(one_line(placement.device)[:60], Counter())[one_line(placement.op)[:60]] += placement.count
    return _operations(on)


def _operations(on: dict[str, Counter[str]]) -> tuple[Counted, ...]:
    most = max((ops.total() for ops in on.values()), default=0)
    operations = []
    for device, ops in sorted(on.items(), key=lambda item: -item[1].total())[:MOST_ITEMS]:
        few = ", ".join(f"{op} x{number:,}" for op, number in ops.most_common(_OPERATIONS))
        more = f" and {counted(len(ops) - _OPERATIONS, 'more type')}" if len(ops) > _OPERATIONS else ""
        operations.append(Counted(device or "?", few + more, round(100 * ops.total() / most, 1), f"{ops.total():,}"))
    return tuple(operations)


_FALLEN = {
    "asked": "a GPU was asked for",
    "scope": "the CPU was asked for",
    "variable": "it follows a variable or iterator on the CPU",
    "none": "no device was asked for",
    "type": "no kernel for the GPU has this type",
    "cpu only": "there is no kernel for the GPU",
}


def fallbacks(report: Report) -> tuple[Counted, ...]:
    """Return the operations of a program that ran on the CPU, with the program lines that caused them."""
    groups: dict[tuple[str, str, str], list[Placed]] = {}
    for placement in report.program.placed if report.program else ():
        if placement.why in _FALLEN and placement.line:
            groups.setdefault((placement.line, placement.op, placement.why), []).append(placement)
    counts = {key: sum(placement.count for placement in same) for key, same in groups.items()}
    most = max(counts.values(), default=1)
    return tuple(
        Counted(
            one_line(place(line))[:120],
            f"{one_line(op)[:60]}: {_FALLEN[why]}",
            round(100 * counts[line, op, why] / most, 1),
            f"{counts[line, op, why]:,}",
        )
        for line, op, why in sorted(counts, key=lambda key: -counts[key])[:MOST_ITEMS]
    )


def program_charts(report: Report) -> tuple[pictures.Chart, ...]:
    """Return the memory of each device of a traced program against its limit."""
    trace = report.program
    charts = []
    made = [process for process in trace.processes if process.devices] if trace else []
    for process in made[:MOST_ITEMS]:
        for device in process.devices[:MOST_ITEMS]:
            if device.name.startswith("GPU") and trace is not None:
                title = one_line(device.name) + (f", process {process.pid}" if len(made) > 1 else "")
                limit = [("what TensorFlow may take", device.limit_bytes)] if device.limit_bytes else []
                course = (title, [(0.0, 0), *device.samples], (), 0)
                charts.append(pictures.chart(title, [course], limit, trace.seconds, far=True))
    return tuple(charts)


def program_sections(report: Report) -> tuple[program.Section, ...]:
    """Return the trace in words, by subject."""
    return tuple(program.sections(report.program, verbose=True)) if report.program else ()


def program_lines(report: Report) -> str:
    """Return the end of the user's program log, if there is one."""
    lines = [plain(line[:MOST_TEXT]).rstrip() for line in report.lines[-_PROGRAM_LINES:]]
    return Room(LINES_ROOM).cut("\n".join(lines), LINES_ROOM)
