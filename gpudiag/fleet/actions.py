"""Finds what has to be done, and on how many nodes."""

from __future__ import annotations

from gpudiag.fix import Kind
from gpudiag.fleet.names import fold
from gpudiag.fleet.nodes import NodeTable
from gpudiag.model.fleet import ActionSum

_MOST_COMMANDS = 3
_UNSUMMED = frozenset({Kind.NONE.value, Kind.COMMAND.value})
"""Kinds that say nothing by themselves: such actions are summed by their commands."""


def summed(table: NodeTable) -> tuple[ActionSum, ...]:
    """Return what has to be done by its kind and place, for the most nodes first; a node counts once in each."""
    kinds: dict[tuple[str, str, str], dict[str, set[int]]] = {}
    for (kind, where, command), numbers in table.actions.items():
        group = kinds.setdefault((kind, where, command if kind in _UNSUMMED else ""), {})
        group.setdefault(command, set()).update(numbers)
    found = []
    for (kind, where, _), commands in kinds.items():
        needing_any = sorted(set().union(*commands.values()))
        ordered = sorted(commands.items(), key=lambda item: (-len(item[1]), item[0]))
        same = ordered[0][0] if len(ordered) == 1 else ""
        most = () if same else tuple((command, len(needing)) for command, needing in ordered[:_MOST_COMMANDS])
        nodes = fold(table.names[number] for number in needing_any)
        found.append(ActionSum(kind, where, same, nodes, len(needing_any), most))
    return tuple(sorted(found, key=lambda one: (-one.number, one.kind, one.where, one.command)))
