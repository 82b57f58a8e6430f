"""Texts of what changed between two reports."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime

from gpudiag.model.change import Change, ChangeSubject, ReportComparison, Side
from gpudiag.text import counted, one_line

MOST_IN_HEAD = 6
_THERE = "there"
"""The value of an element that is only present or absent."""


def in_head(comparison: ReportComparison) -> tuple[str, list[str]]:
    """Return a heading with the time of the earlier report, and a line for each of the first changes of the machine."""
    old, new = comparison.old, comparison.new
    since = f"Since {old.source} ({_age(old, new)})"
    facts = [change_text(change) for change in (*comparison.rates, *_essential(comparison.facts))]
    if not facts:
        return f"{since}, nothing that gpudiag looks at has changed", []
    more = len(facts) - MOST_IN_HEAD
    rest = [f"and {counted(more, 'more change')}: gpudiag diff shows all"] if more > 0 else []
    return f"{since}, this has changed:", [*facts[:MOST_IN_HEAD], *rest]


def _essential(changes: Iterable[Change]) -> Iterator[Change]:
    """Yield the essential changes: a new driver or a new package once, instead of each of its files and versions."""
    by_thing: dict[str, list[Change]] = {}
    for change in changes:
        by_thing.setdefault(re.sub(r"\].*", "]", change.path), []).append(change)
    said: list[Change] = []
    for same in by_thing.values():
        first = next((change for change in same if change.path.endswith("version")), same[0])
        if not any(_follows(first, before) for before in said):
            said.append(first)
    yield from said


def _follows(change: Change, other: Change) -> bool:
    """Return whether ``one`` says no more than ``other``: a path with the version of the driver in it."""
    return bool(
        other.old and other.new and change.old and change.new and other.old in change.old and other.new in change.new
    )


def _age(old: Side, new: Side) -> str:
    """Return how long before the report ``new`` the report ``old`` was made."""
    try:
        return ago(old.started_at, datetime.fromisoformat(new.started_at.replace("Z", "+00:00")))
    except ValueError:  # Python 3.10 cannot read it
        return old.started_at


def ago(started_at: str, now: datetime) -> str:
    """Return how long before ``now`` a report was made, such as ``5 minutes ago``; its time if that is unknown."""
    try:
        seconds = (now - datetime.fromisoformat(started_at.replace("Z", "+00:00"))).total_seconds()
    except (TypeError, ValueError):  # one of them has no time zone, or Python 3.10 cannot read it
        return started_at
    minutes = int(seconds) // 60
    if minutes < 0:
        return f"made later, {_when(started_at)}"
    for length, noun in ((24 * 60, "day"), (60, "hour"), (1, "minute")):
        if minutes >= 2 * length or (length == 1 and minutes):
            return f"{counted(minutes // length, noun)} ago"
    return "less than a minute ago"


def when(side: Side) -> str:
    return _when(side.started_at)


def _when(started_at: str) -> str:
    return f"{started_at[:19].replace('T', ' ')} UTC"


def change_text(change: Change) -> str:
    """Return a change on one line: ``driver 550.54 -> 570.86``, ``numpy: new (2.1.0)``."""
    name, old, new = change.name, _value(change.old), _value(change.new)
    if change.subject is ChangeSubject.RATE:
        return one_line(f"{name}: {new}")
    if change.old is not None and change.new is not None:
        return one_line(f"{name} {old} -> {new}")
    if change.new is not None:
        return one_line(f"{name}: new" if change.new == _THERE else f"{name}: new ({new})")
    return one_line(f"{name}: gone" if change.old == _THERE else f"{name}: gone (was {old})")


def _value(text: str | None) -> str:
    return "''" if text == "" else text or ""
