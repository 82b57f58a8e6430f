"""Lines of TensorFlow's log: what each kind is worth. Matched by text and never by number or time stamp."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class HarmlessLine:
    """A line that looks like an error and is none."""

    pattern: re.Pattern[str]
    why: str


HARMLESS: tuple[HarmlessLine, ...] = ()


def harmless(log: Iterable[str]) -> tuple[str, ...]:
    """Return, for each kind of harmless line in ``log``, the line's text and why it is harmless; each kind once."""
    found: dict[str, str] = {}
    for line in log:
        for one in HARMLESS:
            match = one.pattern.search(line)
            if match:
                found.setdefault(one.pattern.pattern, f"{match[0]}: {one.why}")
    return tuple(found.values())
