"""What a text needs to match an expression, found without matching: to look for it first is much faster."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib import import_module
from itertools import takewhile
from typing import Any

_parser = import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")
"""Parses expressions for :mod:`re`."""
_LEAST = 3
"""The fewest letters of a part: shorter ones are in too many lines."""


def needed_parts(expression: str) -> tuple[tuple[str, ...], ...]:
    """Return parts in lower case, of which a text that ``expression`` matches has one of each group."""
    groups = sorted(_groups(_parser.parse(expression)), key=lambda group: (-min(map(len, group)), len(group)))
    return tuple(group for group in groups if min(map(len, group)) >= _LEAST)[:3]


def _groups(tree: Iterable[tuple[object, Any]]) -> list[tuple[str, ...]]:
    """Return groups of literals: each text that a parsed expression matches has one of every group."""
    groups: list[tuple[str, ...]] = []
    literal = ""
    for code, value in tree:
        name = str(code)
        if name == "LITERAL":
            literal += chr(value).lower()
            continue
        if name == "AT":  # an edge, which has no letter
            continue
        before, literal = literal, ""
        ways: list[Any] = value[1] if name == "BRANCH" else []
        beginnings = {before + _beginning(way) for way in ways}
        if before and before not in beginnings and ways:
            groups += [tuple(beginnings)]
        elif before:
            groups += [(before,)]
        if name == "SUBPATTERN" or (name == "MAX_REPEAT" and value[0]):
            groups += _groups(value[-1])
        elif ways:
            best = [max(_groups(way), key=lambda group: min(map(len, group)), default=()) for way in ways]
            groups += [tuple({part for parts in best for part in parts})] if all(best) else []
    return [*groups, (literal,)] if literal else groups


def _beginning(tree: Iterable[tuple[object, Any]]) -> str:
    """Return the literal in lower case with which a parsed expression begins; "" if it begins with none."""
    literals = takewhile(lambda part: str(part[0]) == "LITERAL", tree)
    return "".join(chr(value).lower() for _, value in literals)
