"""Finds what has to be done, and on how many nodes."""

from __future__ import annotations

from gpudiag.fix import Kind
from gpudiag.fleet.names import fold
from gpudiag.fleet.nodes import NodeTable
from gpudiag.model.fleet import ActionSum, ActionText

_MOST_TEXTS = 3
_UNSUMMED = frozenset({Kind.NONE.value, Kind.COMMAND.value})
"""Kinds that say nothing by themselves: such actions are summed by their texts."""


def summed(table: NodeTable) -> tuple[ActionSum, ...]:
    """Return what has to be done by its kind and place, for the most nodes first; a node counts once in each."""
    kinds: dict[tuple[str, str, str], dict[tuple[str, bool], set[int]]] = {}
    for (kind, where, text, is_command), numbers in table.actions.items():
        group = kinds.setdefault((kind, where, text if kind in _UNSUMMED else ""), {})
        group.setdefault((text, is_command), set()).update(numbers)
    found = []
    for (kind, where, _), texts in kinds.items():
        needing_any = sorted(set().union(*texts.values()))
        ordered = sorted(texts.items(), key=lambda item: (-len(item[1]), item[0]))
        most = tuple(ActionText(*text, len(needing)) for text, needing in ordered[:_MOST_TEXTS])
        nodes = fold(table.names[number] for number in needing_any)
        found.append(ActionSum(kind, where, nodes, len(needing_any), most))
    return tuple(sorted(found, key=lambda one: (-one.number, one.kind, one.where, one.texts[0].text)))
