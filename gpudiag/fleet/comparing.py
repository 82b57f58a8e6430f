"""Compares two runs of a fleet, such as before and after an upgrade.

Nodes are paired by name and GPUs by node and place, so that what differs between nodes is no change.
"""

from __future__ import annotations

import math
import statistics
from array import array
from collections.abc import Container, Iterator, Sequence

from gpudiag.fleet.facts import COUNTS, TEMPERATURE, kind_of, order
from gpudiag.fleet.names import fold
from gpudiag.fleet.nodes import ABSENT, NodeTable
from gpudiag.model.fleet import FactChange, FigureChange, NodeChange, NodeRow, NodeVerdict
from gpudiag.text import counted

LEAST_PART = 0.02
"""A change of a figure that is smaller does not count, however many GPUs were compared."""
SIGMAS = 5.0
"""A change that is not so many times as large as its standard error may be noise, as of one GPU."""
LEAST_GPUS = 3
MOST_FACTS = 50
"""The most changed facts of a report."""
_LEAST_NODES = 0.5
"""A fact changed for most nodes if it changed in the same way on this part of those that had its old value."""
_MOST_NAMED = 5_000

_GOOD_FIRST = (
    NodeVerdict.PASS,
    NodeVerdict.NOT_VERIFIED,
    NodeVerdict.NO_REPORT,
    NodeVerdict.FLAKY,
    NodeVerdict.BROKEN,
    NodeVerdict.FAIL,
)


def changes(old: NodeTable, new: NodeTable) -> tuple[NodeChange, ...]:
    """Return nodes whose verdict or first cause changed, those that got worse first."""
    nodes: dict[tuple[str, str, bool], list[str]] = {}
    for name in dict.fromkeys([*old.names, *new.names]):
        before, after = (table.row(table.number[name]) if name in table.number else None for table in (old, new))
        if before is None or after is None or (before.verdict, before.label) != (after.verdict, after.label):
            nodes.setdefault((_words(before), _words(after), _is_worse(before, after)), []).append(name)
    ordered = sorted(nodes.items(), key=lambda item: (not item[0][2], -len(item[1]), item[0]))
    return tuple(NodeChange(was, now, fold(names), len(names), worse) for (was, now, worse), names in ordered)


def _is_worse(before: NodeRow | None, after: NodeRow | None) -> bool:
    """Return whether a node got worse: a node that fails for another reason did, and so did one of which less is known
    than before."""
    if after is None or after.verdict is NodeVerdict.PASS:
        return False
    if before is None:
        return True
    if after.verdict is NodeVerdict.NO_REPORT:
        return before.verdict is not NodeVerdict.NO_REPORT
    rank, rank_before = _GOOD_FIRST.index(after.verdict), _GOOD_FIRST.index(before.verdict)
    return rank > rank_before or (rank == rank_before and after.verdict is not NodeVerdict.NOT_VERIFIED)


def _words(row: NodeRow | None) -> str:
    if row is None:
        return "not asked"
    return row.verdict.value if row.label == row.verdict.value.lower() else f"{row.verdict.value} {row.label}".rstrip()


def figure_changes(old: NodeTable, new: NodeTable) -> tuple[FigureChange, ...]:
    """Return each figure of each model of GPUs before and after, those that changed by more than noise first.

    Only GPUs that have the figure in both runs are compared. Counts of errors are left out: they only grow.
    """
    nodes = frozenset(_comparable(old, new))
    changed = []
    for (model, figure), column in new.figures.items():
        before = old.figures.get((model, figure))
        if before is None or figure in COUNTS.values():
            continue
        earlier = _by_gpu(old, before, nodes)
        pairs = [(earlier[gpu], value) for gpu, value in _by_gpu(new, column, nodes).items() if earlier.get(gpu)]
        if len(pairs) >= LEAST_GPUS:
            changed.append(_change(model, figure, pairs))
    return tuple(sorted(changed, key=lambda figure: (not figure.counts, not figure.worse, figure.model, figure.figure)))


def _by_gpu(
    table: NodeTable, column: tuple[array[int], array[int], array[float]], nodes: Container[str]
) -> dict[tuple[str, int], float]:
    gpus = ((table.names[number], place, value) for number, place, value in zip(*column, strict=True))
    return {(name, place): value for name, place, value in gpus if name in nodes}


def _change(model: str, figure: str, pairs: list[tuple[float, float]]) -> FigureChange:
    """Return by how much the GPUs changed; the standard error is that of a median of normal deviates."""
    parts = [after / before - 1 for before, after in pairs]
    change = statistics.median(parts)
    spread = 1.4826 * statistics.median(abs(part - change) for part in parts)
    error = 1.2533 * spread / math.sqrt(len(parts))
    counts = abs(change) >= LEAST_PART and abs(change) > SIGMAS * error
    return FigureChange(
        model,
        figure,
        statistics.median(before for before, _ in pairs),
        statistics.median(after for _, after in pairs),
        round(change, 5),
        round(error, 5),
        len(pairs),
        counts,
        counts and (change > 0) == (figure == TEMPERATURE),
    )


def fact_changes(old: NodeTable, new: NodeTable) -> tuple[FactChange, ...]:
    """Return facts that changed in the same way on most nodes that had the old value, and which nodes were left behind.

    Facts that changed on exactly the same nodes are one, named by the fact that people look at first.
    """
    both = _comparable(old, new)
    before, after = _Columns(old, both), _Columns(new, both)
    together: dict[bytes, list[FactChange]] = {}
    for fact in sorted(before.values.keys() | after.values.keys(), key=order):
        for nodes, change in _changed(fact, both, before.of(fact), after.of(fact)):
            together.setdefault(nodes, []).append(change)
    changes_of_facts = []
    for first, *rest in together.values():
        same = tuple(f"{other.fact} {other.old} -> {other.new}" for other in rest)
        changes_of_facts.append(
            FactChange(first.fact, first.old, first.new, first.number, first.had, first.kept, first.kept_number, same)
        )
    changes_of_facts.sort(key=lambda change: (-change.number, order(change.fact), change.old))
    return tuple(changes_of_facts[:MOST_FACTS])


def notes(old: NodeTable, new: NodeTable) -> Iterator[str]:
    """Yield which nodes could not be compared although both runs have a report of them."""
    left_out = len(_with_reports(old, new)) - len(_comparable(old, new))
    if left_out:
        yield f"{counted(left_out, 'node', ',')} simulated in only one run: their facts and figures are not compared"


def _comparable(old: NodeTable, new: NodeTable) -> list[str]:
    """Return the nodes with a report in both runs; a simulated machine has variables and libraries that a real one has
    not, so both must be simulated, or neither."""
    return [
        name
        for name in _with_reports(old, new)
        if old.row(old.number[name]).simulated == new.row(new.number[name]).simulated
    ]


def _with_reports(old: NodeTable, new: NodeTable) -> list[str]:
    return [name for name in new.names if all(_has_report(table, name) for table in (old, new))]


def _has_report(table: NodeTable, name: str) -> bool:
    return name in table.number and table.row(table.number[name]).reason is None


class _Columns:
    """The facts of some nodes of a table, one fact at a time: all of 100,000 nodes would need a gigabyte."""

    def __init__(self, table: NodeTable, names: Sequence[str]) -> None:
        self.place = {table.number[name]: index for index, name in enumerate(names)}
        self.table = table
        self.values: dict[str, dict[str, array[int]]] = {}
        for (fact, value), numbers in table.facts.items():
            self.values.setdefault(fact, {})[value] = numbers

    def of(self, fact: str) -> list[str | None]:
        """Return the value of a fact for each node, in their order; None where it is not known."""
        kind = kind_of(fact)
        has_absent = kind is not None and not self.table.has_too_many_values(fact)
        column: list[str | None] = [ABSENT if has_absent else None] * len(self.place)
        unread = self.table.unread.get(kind, array("I")) if kind is not None else array("I")
        for value, numbers in ((None, unread), *self.values.get(fact, {}).items()):
            for number in numbers:
                index = self.place.get(number)
                if index is not None:
                    column[index] = value
        return column


def _changed(
    fact: str, names: list[str], before: Sequence[str | None], after: Sequence[str | None]
) -> Iterator[tuple[bytes, FactChange]]:
    """Yield the changes of a fact that most nodes with its old value have in common, each with its nodes."""
    by_values: dict[tuple[str, str], array[int]] = {}
    had: dict[str, int] = {}
    for index, (was, now) in enumerate(zip(before, after, strict=True)):
        if was is None or now is None or (was is ABSENT and now is ABSENT):
            continue
        had[was] = had.get(was, 0) + 1
        by_values.setdefault((was, now), array("I")).append(index)
    for (was, now), nodes in by_values.items():
        if was != now and len(nodes) >= 2 and len(nodes) >= _LEAST_NODES * had[was]:
            kept = by_values.get((was, was), array("I"))
            listed = fold(names[index] for index in kept) if len(kept) <= _MOST_NAMED else ""
            yield nodes.tobytes(), FactChange(fact, was, now, len(nodes), had[was], listed, len(kept))
