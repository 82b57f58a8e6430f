"""Text from other programs made fit to be shown: terminals obey escape sequences, XML and tables forbid them."""

from __future__ import annotations

import re

_ESCAPE_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
# Also the marks that reverse the direction of writing and the separators of lines and paragraphs.
_UNPRINTABLE = re.compile(r"[^\t\n\x20-\x7e\xa0-\u2027\u202f-\u2065\u206a-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def plain(text: str) -> str:
    """Return ``text`` without ANSI escape sequences, control characters and lone surrogates; tabs and newlines stay."""
    return _UNPRINTABLE.sub("", _ESCAPE_SEQUENCE.sub("", text))


def one_line(text: str) -> str:
    """Return :func:`plain` text on one line, without space at its ends or doubled."""
    return " ".join(plain(text).split())


def with_names(template: str) -> str:
    """Return a format string with the names of its figures in angle brackets in their place."""
    return template.format_map(_Names())


class _Name(str):
    """A figure's name; it looks alike in every format."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)

    def __format__(self, specification: str) -> str:
        return str(self)


class _Names(dict[str, _Name]):
    """Every figure by its name."""

    def __missing__(self, name: str) -> _Name:
        return _Name(f"<{name}>")
