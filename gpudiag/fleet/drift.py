"""Finds facts in which some nodes differ from the majority, without a list of what is right.

A fact drifts if at least two thirds of the nodes agree in it. Where fewer do, nobody can say which of them are right:
such a fact is shown only if it is one that a fleet should agree in, such as the driver, and has few values, because a
fleet that was upgraded by half looks so. A fact with more values than half of the nodes tells nodes apart, such as a
serial number, and is left out. Nodes with different GPUs may differ in everything: they are compared with each other
only in facts of which the majority is the same for all models.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpudiag.fleet.facts import PRINCIPAL, order
from gpudiag.fleet.names import fold
from gpudiag.fleet.nodes import NodeTable, bits, numbers_of
from gpudiag.model.fleet import Drift

LEAST_NODES = 3
MAJORITY = 2 / 3
MOST = 50
"""The most drifts of a report."""
MOST_NAMED = 5_000
"""Nodes with a value are listed if they are not more: to fold more takes longer than reading the list is worth."""
_MOST_OTHERS = 8
"""The most other values of a drift; more are put together in the last one."""
_OF_A_NODE = frozenset({"rack", "GPU"})


@dataclass(frozen=True)
class _Divided:
    """A fact in which nodes differ: each value with the nodes that have it, as bits, the majority first."""

    fact: str
    values: tuple[tuple[str, int], ...]

    @property
    def others(self) -> tuple[int, ...]:
        """The sets of nodes that differ from the majority."""
        return tuple(sorted(nodes for _, nodes in self.values[1:]))

    @property
    def differing(self) -> int:
        return sum(nodes.bit_count() for _, nodes in self.values[1:])


def drift(table: NodeTable) -> tuple[Drift, ...]:
    """Return the facts in which some nodes differ from the majority, those that people look at first before others, and
    those of few nodes before those of many. Facts in which the same nodes differ are one."""
    with_report = bits(table.with_report(), len(table.names))
    values = table.values(with_report)
    models = list(_models(values.get("GPU", {}), with_report))
    together: dict[tuple[str, tuple[int, ...]], list[_Divided]] = {}
    for name in sorted(values.keys() - _OF_A_NODE, key=order):
        majorities = {_majority(values[name], among) for _, among in models if among.bit_count() >= LEAST_NODES} - {""}
        for model, among in models if len(majorities) > 1 else [("", with_report)]:
            divided = _divide(name, values[name], among)
            if divided is not None:
                together.setdefault((model, divided.others), []).append(divided)
    differing = [(first, model, [other.fact for other in rest]) for (model, _), (first, *rest) in together.items()]
    differing.sort(key=lambda item: (order(item[0].fact)[0], item[0].differing, item[0].fact, item[1]))
    return tuple(_drift(table.names, *item) for item in differing[:MOST])


def _models(models: Mapping[str, int], with_report: int) -> Iterator[tuple[str, int]]:
    """Yield the nodes that are compared with each other, with the name of their GPUs if not all nodes have them.

    A node whose GPUs are not known is compared with the others if these all have one model.
    """
    if len(models) < 2:
        yield "", with_report
    else:
        yield from models.items()


def _majority(values: Mapping[str, int], among: int) -> str:
    """Return the value that most nodes have; "" if none has the fact."""
    value, nodes = max(values.items(), key=lambda item: ((item[1] & among).bit_count(), item[0]))
    return value if nodes & among else ""


def _divide(name: str, values: Mapping[str, int], among: int) -> _Divided | None:
    """Return the values of a fact among nodes if some of them differ from a majority; None else."""
    inside = {value: nodes & among for value, nodes in values.items() if nodes & among}
    known = 0
    for nodes in inside.values():
        known |= nodes
    ordered = sorted(inside.items(), key=lambda item: (-item[1].bit_count(), item[0]))
    number = known.bit_count()
    if len(ordered) < 2 or number < LEAST_NODES or len(ordered) > max(2, number / 2):
        return None
    most = ordered[0][1].bit_count()
    is_split = name in PRINCIPAL and len(ordered) <= _MOST_OTHERS
    if most < MAJORITY * number and not is_split:
        return None
    return _Divided(name, tuple(ordered))


def _drift(names: Sequence[str], divided: _Divided, model: str, same: list[str]) -> Drift:
    (majority, most), *others = divided.values
    fewest = sorted(others, key=lambda item: (item[1].bit_count(), item[0]))
    if len(fewest) > _MOST_OTHERS:
        rest = 0
        for _, nodes in fewest[_MOST_OTHERS - 1 :]:
            rest |= nodes
        fewest[_MOST_OTHERS - 1 :] = [(f"{len(fewest) - _MOST_OTHERS + 1} other values", rest)]
    listed = tuple((value, _fold(names, nodes), nodes.bit_count()) for value, nodes in fewest)
    return Drift(divided.fact, majority, most.bit_count(), listed, model, tuple(same))


def _fold(names: Sequence[str], nodes: int) -> str:
    if nodes.bit_count() > MOST_NAMED:
        return ""
    return fold(names[number] for number in numbers_of(nodes))
