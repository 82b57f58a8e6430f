"""Compares two runs of a fleet, such as before and after an upgrade."""

from __future__ import annotations

from gpudiag.fleet.names import fold
from gpudiag.fleet.nodes import NodeTable
from gpudiag.model.fleet import NodeChange, NodeRow, NodeVerdict


def changes(old: NodeTable, new: NodeTable) -> tuple[NodeChange, ...]:
    """Return nodes whose verdict or first cause changed, those that got worse first."""
    found: dict[tuple[str, str, bool], list[str]] = {}
    for name in dict.fromkeys([*old.names, *new.names]):
        before, after = (table.row(table.number[name]) if name in table.number else None for table in (old, new))
        if before is None or after is None or (before.verdict, before.label) != (after.verdict, after.label):
            worse = after is not None and after.verdict is not NodeVerdict.PASS
            found.setdefault((_words(before), _words(after), worse), []).append(name)
    ordered = sorted(found.items(), key=lambda item: (not item[0][2], -len(item[1]), item[0]))
    return tuple(NodeChange(was, now, fold(names), len(names), worse) for (was, now, worse), names in ordered)


def _words(row: NodeRow | None) -> str:
    if row is None:
        return "not asked"
    return f"{row.verdict.value} {row.label}".rstrip()
