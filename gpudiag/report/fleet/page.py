"""The contents of the page of a fleet, as records that a template renders.

A page of ten thousand nodes has a square and a row for each, so both are a few bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from gpudiag.model.fleet import FleetReport, Group, NodeRow, NodeVerdict
from gpudiag.report.fleet import words
from gpudiag.report.page.room import Room
from gpudiag.text import one_line

LETTERS = {
    NodeVerdict.FAIL: "f",
    NodeVerdict.FLAKY: "y",
    NodeVerdict.BROKEN: "b",
    NodeVerdict.NOT_VERIFIED: "v",
    NodeVerdict.NO_REPORT: "r",
    NodeVerdict.PASS: "p",
}
"""The class of a node's square and row."""
MOST_NODES = 20_000
"""The most nodes that are on the map and in the list: worse ones first."""
MOST_ROWS = 200
"""The most rows of each other table."""
BLOCK = 100
"""Squares that are together if no rack is known."""
_NO_RACK = "no rack"
_SIZES = ((200, "large"), (2000, "medium"))
"""Up to how many nodes the squares have a size."""
_TEXT = 160
"""The most characters of a text in the list."""
_TEXTS = 650_000
"""The most characters of all texts in the list: the page of 10,000 nodes that all fail has 2 MB."""
MOST_BYTES = 300_000
"""The most bytes of all else that comes from nodes."""
_FOLDED, _UNFOLDED = 90, 6000
"""The most characters of folded names before and after they are opened."""


@dataclass(frozen=True)
class Square:
    """A node on the map."""

    letter: str
    title: str


@dataclass(frozen=True)
class Block:
    """Squares that are together: a rack, or nodes in order."""

    name: str
    title: str
    squares: list[Square]


@dataclass(frozen=True)
class ListRow:
    """A node in the list."""

    letter: str
    node: str
    rack: str
    verdict: str
    label: str
    text: str


def shown(report: FleetReport) -> tuple[NodeRow, ...]:
    """Return the nodes that the page shows one by one, in order; of too many, those that did not pass come first."""
    if len(report.rows) <= MOST_NODES:
        return report.rows
    order = list(NodeVerdict)
    return tuple(sorted(report.rows, key=lambda row: order.index(row.verdict))[:MOST_NODES])


def size(report: FleetReport) -> str:
    """Return the size of the squares."""
    return next((name for most, name in _SIZES if len(report.rows) <= most), "small")


def blocks(report: FleetReport) -> list[Block]:
    """Return the map: by rack if racks are known, else by hundreds."""
    rows = shown(report)
    if report.racks:
        by_rack: dict[str, list[NodeRow]] = {}
        for row in rows:
            by_rack.setdefault(one_line(report.racks.get(row.node, "")) or _NO_RACK, []).append(row)
        ordered = sorted(by_rack.items(), key=lambda item: (item[0] == _NO_RACK, _natural(item[0])))
        return [_block(name, same) for name, same in ordered]
    groups = [rows[at : at + BLOCK] for at in range(0, len(rows), BLOCK)]
    return [_block(one_line(group[0].node) if len(groups) > 1 else "", list(group)) for group in groups]


def _block(name: str, rows: list[NodeRow]) -> Block:
    bad = sum(row.verdict is not NodeVerdict.PASS for row in rows)
    first, last = one_line(rows[0].node), one_line(rows[-1].node)
    title = f"{name}: {first} to {last}, {bad} of {len(rows)} did not pass"
    return Block(name, title, [Square(LETTERS[row.verdict], _title(row)) for row in rows])


def _title(row: NodeRow) -> str:
    if row.verdict is NodeVerdict.PASS:
        return one_line(row.node)
    return one_line(f"{row.node}: {row.verdict.value} {row.label}")


def _natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """Return a key by which r10 comes after r9."""
    return tuple(
        (0, int(part), part) if part.isascii() and part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", name)
    )


def rows(report: FleetReport) -> Iterator[ListRow]:
    """Yield the list of nodes, the worst verdict first."""
    order = list(NodeVerdict)
    left = _TEXTS
    for row in sorted(shown(report), key=lambda row: order.index(row.verdict)):
        attempts = f"{', '.join(row.attempts)}: " if row.attempts else ""
        text = one_line(f"{attempts}{row.text}")
        if len(text) > _TEXT:
            text = f"{text[:_TEXT]}…"
        text = text if len(text) <= left else ""
        left -= len(text)
        rack = one_line(report.racks.get(row.node, ""))
        yield ListRow(LETTERS[row.verdict], one_line(row.node), rack, row.verdict.value, one_line(row.label), text)


def nodes(folded: str, room: Room) -> tuple[str, str]:
    """Return folded names in a few characters, and more of them if those are not all; "" otherwise."""
    text = one_line(folded)
    if len(text) <= _FOLDED:
        return room.cut(text), ""
    return words.shortened(text, _FOLDED), room.cut(text, _UNFOLDED)


def example(group: Group) -> str:
    """Return the headline of a group's node, or the last line that was seen of it."""
    text = one_line(group.text)
    return f"such as: {text}" if text and group.number > 1 and group.verdict is NodeVerdict.NO_REPORT else text
