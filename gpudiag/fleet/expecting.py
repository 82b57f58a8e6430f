"""Expectations of a fleet: the table ``[fleet]`` of a file of expectations, read before anything starts, and judged at
the end.

Each expectation is met or not, and both are sentences of the report. Where the file says how many nodes may fail, that
takes the place of the rule that none may.
"""

from __future__ import annotations

import json
import math
import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

from gpudiag import configuration
from gpudiag.errors import UsageError, nearest
from gpudiag.fleet.names import fold
from gpudiag.fleet.nodes import MOST_VALUES, NodeTable, bits, numbers_of
from gpudiag.model.fleet import FleetReport, NodeVerdict
from gpudiag.text import counted, one_line, printable

TABLE = "fleet"
SAME = "same"
_LONGEST = 100
_MOST_VALUES = 5
_MOST_NODES = 120
"""The most characters of folded names in a sentence."""

_SHARE = 'a whole number, such as 0, or bounds in quotes, such as ">=98%" of the nodes asked for, ">=64" or "<=2"'
_NUMBER = 'a whole number, such as 0, or bounds in quotes, such as "<=2"'
FACTS = 'a list of facts in quotes, such as ["driver", "kernel"]'

_COMPARE: dict[str, Callable[[Fraction, Fraction], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    ">": operator.gt,
    "<": operator.lt,
}
_BOUND = re.compile(r"(>=|<=|==|>|<)\s*(\d+(?:\.\d+)?)\s*(%?)")


@dataclass(frozen=True)
class Key:
    """An expectation of a number, as a file can set it."""

    name: str
    what: str
    """Its meaning in a sentence, for the manual."""
    seen: Callable[[FleetReport], int | None]
    """Returns the number; None if the report does not know it."""
    verdict: NodeVerdict | None = None
    has_share: bool = False
    """Whether a part of all nodes may be expected, such as ``>=98%``."""
    unknown: str = ""
    """Why the report does not know the number."""

    @property
    def wanted(self) -> str:
        """The allowed values, for errors and for the manual."""
        return _SHARE if self.has_share else _NUMBER


def _of_verdict(verdict: NodeVerdict, what: str) -> Key:
    name = verdict.value.lower().replace(" ", "-")
    return Key(name, what, lambda report: report.counts.get(verdict.value, 0), verdict, has_share=True)


KEYS = (
    Key("nodes", "nodes that were asked for", lambda report: report.asked),
    _of_verdict(NodeVerdict.PASS, "nodes with PASS; then others with a report may have another verdict"),
    _of_verdict(NodeVerdict.FAIL, "nodes with FAIL"),
    _of_verdict(NodeVerdict.FLAKY, "nodes with FLAKY: checked twice, and PASS only once"),
    _of_verdict(NodeVerdict.BROKEN, "nodes with BROKEN"),
    _of_verdict(NodeVerdict.NOT_VERIFIED, "nodes with NOT VERIFIED"),
    _of_verdict(NodeVerdict.NO_REPORT, "nodes without a report, as with --allow-missing"),
    Key("outliers", "figures of GPUs that are far from those of other GPUs of their model", lambda r: len(r.outliers)),
    Key(
        "worse",
        "nodes that are worse than in the older run of --against",
        lambda report: sum(change.number for change in report.changes if change.worse) if report.against else None,
        unknown="not known without --against OLD",
    ),
)
SAME_WHAT = "facts that must be known of every node with a report, and the same on all of them"
_NAMES = {key.name: key for key in KEYS}


@dataclass(frozen=True)
class FleetExpectations:
    """What is expected of a fleet."""

    source: str
    """The file, for messages."""
    numbers: dict[str, int | str]
    """The expected number of each key: a whole number, or bounds."""
    same: tuple[str, ...] = ()


def load(path: Path) -> FleetExpectations:
    """Return the expectations in a file; raises :class:`UsageError` with the key, the value and what to write."""
    source = printable(str(path))
    content = configuration.expectations(path, named=True) or {}
    table = content.get(TABLE)
    if table is None:
        near = next((name for name in content if nearest(name, [TABLE])), "")
        hint = f" Is [{one_line(near)}] that table?" if near and near not in _NAMES else ""
        raise UsageError(f"{source}: has no table [{TABLE}], which says what is expected of a fleet.{hint}")
    if not isinstance(table, dict):
        raise UsageError(f"{source}: {TABLE!r} must be a table: [{TABLE}]; it is {_shown(table)}.")
    numbers: dict[str, int | str] = {}
    same: tuple[str, ...] = ()
    for name, value in table.items():
        if name == SAME:
            same = _facts(value, source)
        elif name in _NAMES:
            numbers[name] = _number(_NAMES[name], value, source)
        else:
            raise UsageError(
                f"{source}: [{TABLE}] has an unknown key {one_line(name)!r}. {nearest(name, [*_NAMES, SAME])}"
            )
    if not table:
        raise UsageError(f'{source}: [{TABLE}] expects nothing. Write a key, such as pass = ">=98%".')
    return FleetExpectations(source, numbers, same)


def _facts(value: Any, source: str) -> tuple[str, ...]:
    if not (isinstance(value, list) and value and all(isinstance(item, str) and item.strip() for item in value)):
        raise UsageError(f"{source}: [{TABLE}] {SAME!r} must be {FACTS}; it is {_shown(value)}.")
    return tuple(dict.fromkeys(value))


def _number(key: Key, value: Any, source: str) -> int | str:
    if type(value) is int and value >= 0:
        return value
    reason = "" if isinstance(value, str) else f"it is {_shown(value)}"
    if not reason:
        try:
            _check(_bounds(value), has_share=key.has_share)
        except ValueError as error:
            reason = f"{_shown(value)} is not: {error}"
    if reason:
        raise UsageError(f"{source}: [{TABLE}] {key.name!r} must be {key.wanted}; {reason}.")
    return str(value)


def _bounds(text: str) -> list[tuple[str, Fraction, bool]]:
    """Return the sign, the number and whether it is a share of each bound; raises ``ValueError``."""
    bounds = []
    for part in text.split(","):
        match = _BOUND.fullmatch(part.strip())
        if match is None:
            raise ValueError(f"{one_line(part)!r} is not >=, >, ==, <= or < and a number")
        bounds.append((match[1], Fraction(match[2]), bool(match[3])))
    return bounds


def _check(bounds: list[tuple[str, Fraction, bool]], *, has_share: bool) -> None:
    """Raise ``ValueError`` with the reason if no fleet can meet the bounds."""
    for sign, number, is_share in bounds:
        if is_share and not has_share:
            raise ValueError("a share of this is not counted")
        if is_share and (number > 100 or (number == 100 and sign == ">")):
            raise ValueError("no share is above 100%")
        if sign == "<" and not number:
            raise ValueError("no number is below 0")
    for unit in (True, False):
        alike = [(sign, number) for sign, number, share in bounds if share is unit]
        ends = sorted({Fraction(0), *(number for _, number in alike)})
        between = [(lower + upper) / 2 for lower, upper in pairwise([*ends, ends[-1] + 1])]
        whole = [Fraction(math.floor(end) + more) for end in ends for more in (0, 1)]
        if not any(
            all(_COMPARE[sign](number, bound) for sign, bound in alike)
            for number in ([*ends, *between] if unit else whole)
        ):
            raise ValueError("no number is within these bounds")


def judge(
    report: FleetReport, table: NodeTable, expected: FleetExpectations
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return a sentence for each expectation that is met, and for each that is not."""
    sentences = [*_numbers_judged(report, expected), *_same_judged(table, expected.same)]
    met, unmet = (tuple(text for is_met, text in sentences if is_met is wanted) for wanted in (True, False))
    return met, unmet


def allowed(expected: FleetExpectations) -> frozenset[NodeVerdict]:
    """Return the verdicts of which the file says how many there may be: if it is met, they count no more.

    ``pass`` says so of every verdict of a report. It says nothing of nodes without one.
    """
    named = {verdict for name in expected.numbers if (verdict := _NAMES[name].verdict) is not None}
    if NodeVerdict.PASS in named:
        named |= set(NodeVerdict) - {NodeVerdict.NO_REPORT}
    return frozenset(named - {NodeVerdict.PASS})


def _numbers_judged(report: FleetReport, expected: FleetExpectations) -> Iterator[tuple[bool, str]]:
    """Yield whether each number is as expected, and a sentence that says so."""
    for name, wanted in expected.numbers.items():
        key = _NAMES[name]
        number = key.seen(report)
        if number is None:
            yield False, f"{name}: {key.unknown}, expected {wanted}"
            continue
        is_met = (
            number == wanted
            if isinstance(wanted, int)
            else all(
                _COMPARE[sign](
                    Fraction(number * 100 if is_share else number), bound * (report.asked if is_share else 1)
                )
                for sign, bound, is_share in _bounds(wanted)
            )
        )
        yield is_met, f"{name}: {_seen(number, report.asked, wanted)}, expected {wanted}"


def _seen(number: int, asked: int, wanted: int | str) -> str:
    if isinstance(wanted, str) and "%" in wanted:
        # rounded down, so that what is below 98 % is never shown as that
        share = 10_000 * number // asked / 100 if asked else 0.0
        return f"{share:g} % ({number:,} of {counted(asked, 'node', ',')})"
    return f"{number:,}"


def _same_judged(table: NodeTable, facts: tuple[str, ...]) -> Iterator[tuple[bool, str]]:
    """Yield whether each fact is known of every node with a report, and the same on all of them."""
    with_report = table.with_report()
    known = table.values(bits(with_report, len(table.names))) if facts else {}
    for fact in facts:
        values = {value: set(numbers_of(nodes)) for value, nodes in known.get(fact, {}).items()}
        if table.has_too_many_values(fact):
            yield False, f"{SAME}: {one_line(fact)} has more than {MOST_VALUES:,} values"
            continue
        if not values:
            yield False, f"{SAME}: no report has the fact {one_line(fact)!r}. {nearest(fact, known)}".rstrip()
            continue
        lacking = set(with_report).difference(*values.values())
        ranked = sorted(values.items(), key=lambda item: (-len(item[1]), item[0]))
        parts = [f"{one_line(value)[:_LONGEST]} on {len(nodes):,}" for value, nodes in ranked[:_MOST_VALUES]]
        for number, (_, nodes) in enumerate(ranked[1:_MOST_VALUES], 1):
            parts[number] += f" ({_names(table, nodes)})"
        if len(ranked) > _MOST_VALUES:
            parts.append(f"and {len(ranked) - _MOST_VALUES:,} more values")
        if lacking:
            parts.append(f"unknown on {len(lacking):,} ({_names(table, lacking)})")
        yield len(values) == 1 and not lacking, f"{SAME}: {one_line(fact)} is {', '.join(parts)}"


def _names(table: NodeTable, numbers: set[int]) -> str:
    text = fold(table.names[number] for number in sorted(numbers))
    return text if len(text) <= _MOST_NODES else f"{text[:_MOST_NODES].rpartition(',')[0]},..."


def _shown(value: Any) -> str:
    text = one_line(json.dumps(value, ensure_ascii=False, default=str))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
