"""Delta debugging (Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", 2002). Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeVar

T = TypeVar("T")

Works = Callable[[list[tuple[T, ...]]], int | None]
"""Tries each of some sets, several at the same time if that helps, and returns the number of one that works."""


def smallest(items: Sequence[T], works: Works[T]) -> tuple[T, ...]:
    """Return a part of ``items`` that works and of which no single item can be left out; ``items`` works as a whole.

    A single item among n is found in about log2(n) rounds.
    """
    needed = tuple(items)
    pieces = 2
    while len(needed) > 1:
        parts = _split(needed, pieces)
        number = works(parts)
        if number is not None:
            needed, pieces = parts[number], 2
            continue
        others = [tuple(item for item in needed if item not in part) for part in parts] if pieces > 2 else []
        number = works(others) if others else None
        if number is not None:
            needed, pieces = others[number], max(pieces - 1, 2)
        elif pieces >= len(needed):
            break
        else:
            pieces = min(2 * pieces, len(needed))
    return needed


def _split(items: tuple[T, ...], pieces: int) -> list[tuple[T, ...]]:
    """Return ``items`` cut into this many pieces of nearly equal length."""
    ends = [len(items) * number // pieces for number in range(pieces + 1)]
    return [items[start:end] for start, end in pairwise(ends)]
