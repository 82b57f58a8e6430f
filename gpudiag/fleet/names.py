"""Names of nodes: lists such as ``node[001-100]`` to names, and names back to such lists, by ClusterShell.

A name becomes an argument of a program and the name of a file, so it is checked before.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from gpudiag.errors import UsageError
from gpudiag.text import one_line

MOST = 200_000
"""The most names: to expand a million takes ClusterShell 6.5 s."""
_PART = re.compile(r"(?:[^,\s\[]|\[[^\[\]]*\])+")
_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_GROUP = re.compile(r"(?<![\w.-])@")
_NUMBER = re.compile(r"([0-9]+)")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}")


def is_name(word: str) -> bool:
    """Return whether a word can be the name of a node: it is no option, no path and no shell syntax."""
    return _NAME.fullmatch(word) is not None


def expand(words: Iterable[str]) -> tuple[str, ...]:
    """Return the names of nodes that words such as ``node[1-3],login`` mean, each once, in order.

    Raises :class:`UsageError` for a list that cannot be read, for a name that is no name of a node, and for more than
    :data:`MOST`.
    """
    names: dict[str, None] = {}
    for word in words:
        if len(names) + _most_in(word) > MOST:
            raise UsageError(f"{one_line(word)!r} names more than {MOST:,} nodes; check a part of them at a time.")
        if _GROUP.search(word):
            raise UsageError(
                f"{one_line(word)!r} is a group of ClusterShell, whose groups may be those of its example: give the "
                "names of the nodes, as 'nodeset -e' prints them."
            )
        try:
            nodes = _node_set()(word)
        except Exception as error:  # ClusterShell has a family of them, and int() fails in it, too
            raise UsageError(f"{one_line(word)!r} is not a list of nodes such as node[1-3],login: {error}.") from None
        if not nodes:
            raise UsageError(f"{one_line(word)!r} names no node.")
        for name in nodes:
            if not is_name(name):
                raise UsageError(
                    f"{one_line(name)!r} cannot be the name of a node: letters, digits, '_', '.' and '-' only, and no "
                    "'-' or '.' first."
                )
            names[name] = None
    return tuple(names)


def _most_in(word: str) -> int:
    """Return how many names a list has at most; ClusterShell would take minutes to count those of ``n[1-90000000]``."""
    total = 0
    for part in _PART.findall(word):
        number = 1
        for ranges in _BRACKETS.findall(part):
            bounds = [re.findall(r"\d+", one_range) for one_range in ranges.split(",")]
            number *= sum(abs(int(pair[1]) - int(pair[0])) + 1 if len(pair) > 1 else 1 for pair in bounds)
        total += number
    return total


def fold(names: Iterable[str]) -> str:
    """Return names as a short list, such as ``node[017,101-102]``; what is no name of a node follows as it is."""
    known: list[str] = []
    other: list[str] = []
    for name in dict.fromkeys(names):
        (known if is_name(name) else other).append(name)
    return ",".join([*_by_second_number(_by_last_number(known)), *map(one_line, other)])


def hostlist(names: Iterable[str]) -> str:
    """Return names of nodes as a list that Slurm reads, too: ``rack1n[1-4],rack2n[1-4]``, a word has one bracket."""
    return ",".join(f"{head}{ranges}{tail}" for head, ranges, tail in _by_last_number(names))


def _by_last_number(names: Iterable[str]) -> list[tuple[str, str, str]]:
    """Return names as few triples: what is before their last number, the folded numbers, and what comes after.

    ClusterShell, which reads such lists, takes 31 s of a processor to fold 10,000 names such as r12n07.
    """
    numbers: dict[tuple[str, str], list[str]] = {}
    folded = []
    for name in names:
        head, number, tail = _parts(name)
        if number:
            numbers.setdefault((head, tail), []).append(number)
        else:
            folded.append((name, "", ""))
    return sorted([*folded, *((head, _ranges(found), tail) for (head, tail), found in numbers.items())])


def _by_second_number(folded: Iterable[tuple[str, str, str]]) -> list[str]:
    """Return lists of names with one more number folded where the last numbers are the same."""
    numbers: dict[tuple[str, str], list[str]] = {}
    for whole, ranges, tail in folded:
        head, number, middle = _parts(whole) if ranges else (whole, "", "")
        numbers.setdefault((head, f"{middle}{ranges}{tail}"), []).append(number)
    return [f"{head}{_ranges(found) if found[0] else ''}{rest}" for (head, rest), found in numbers.items()]


def _parts(text: str) -> tuple[str, str, str]:
    """Return what is before the last number of a text, the number, and what comes after; without one, the text and
    nothing."""
    *before, number, tail = _NUMBER.split(text) if _NUMBER.search(text) else (text, "", "")
    return "".join(before), number, tail


def _ranges(numbers: Sequence[str]) -> str:
    """Return numbers as ``[001-100,205]``, or the only one as it is. Numbers with zeros before them make a range with
    those of their length only."""
    padded = {len(number) for number in numbers if number.startswith("0") and len(number) > 1}
    by_length: dict[int, list[int]] = {}
    for number in numbers:
        by_length.setdefault(len(number) if len(number) in padded else 0, []).append(int(number))
    parts = []
    for length, values in sorted(by_length.items()):
        values.sort()
        first = last = values[0]
        for value in (*values[1:], None):
            if value is not None and value == last + 1:
                last = value
                continue
            parts.append(f"{first:0{length}}" if first == last else f"{first:0{length}}-{last:0{length}}")
            if value is not None:
                first = last = value
    return parts[0] if len(numbers) == 1 else f"[{','.join(parts)}]"


def _node_set() -> Any:
    """Return ClusterShell's class of lists of nodes; raises :class:`UsageError` if it is not installed."""
    try:
        from ClusterShell.NodeSet import NodeSet
    except ModuleNotFoundError:
        raise UsageError("a fleet needs the package ClusterShell: pip install clustershell") from None
    return NodeSet
