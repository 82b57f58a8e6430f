"""Limits the parts of the page that could be of any length, so that the page stays small."""

from __future__ import annotations

from dataclasses import dataclass, field

from markupsafe import escape

MOST_ROWS = 2000
"""The most rows; a report has some hundreds."""
MOST_TEXT = 1200
"""The most characters of a text, such as a message."""
MOST_ITEMS = 40
_TEXT_ROOM, _FIGURES_ROOM, _LOG_ROOM, LINES_ROOM, LISTS_ROOM = 100_000, 50_000, 50_000, 30_000, 70_000
"""The most bytes of all findings, figures and logs of the probes, of the program's log, and of the lists in the
template: a megabyte in all leaves room for the notes about cuts."""


@dataclass
class Room:
    """The bytes left for parts of any length, so that the page stays small."""

    left: int

    def cut(self, text: str, most: int = MOST_TEXT) -> str:
        """Return ``text``, cut if it is longer than ``most`` characters or if no room is left."""
        shown = text[:most]
        if (size := _size(shown)) > self.left:
            shown = shown[: len(shown) * max(self.left, 0) // size]
        self.left -= _size(shown)
        rest = len(text) - len(shown)
        return f"{shown}… ({rest:,} more characters in the JSON)" if rest and shown else shown or ("…" if text else "")


def _size(text: str) -> int:
    """Return how many bytes a text has in the page."""
    return len(escape(text).encode(errors="replace"))


@dataclass
class Rooms:
    """The rooms of the page's sections."""

    texts: Room = field(default_factory=lambda: Room(_TEXT_ROOM))
    figures: Room = field(default_factory=lambda: Room(_FIGURES_ROOM))
    logs: Room = field(default_factory=lambda: Room(_LOG_ROOM))
