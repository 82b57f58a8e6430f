"""Text from other programs made fit to be shown: terminals obey escape sequences, XML and tables forbid them."""

from __future__ import annotations

import re

_ESCAPE_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
# Controls but tab and newline, and what has no visible shape: marks that join, part or reverse writing, separators
# of lines, fillers, selectors of variants, tags (Unicode: Cc, Cf, Zl, Zp, Default_Ignorable), surrogates and
# noncharacters.
_INVISIBLE = (
    r"\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5"
    r"\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufdd0-\ufdef\ufe00-\ufe0f\ufeff\uffa0"
    r"\ufff0-\ufffb\ufffe\uffff\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    r"\U000e0000-\U000e0fff"
)
_UNPRINTABLE = re.compile(f"[{_INVISIBLE}]")


def printable(text: str) -> str:
    """Return ``text`` with undecodable bytes of the operating system as escapes: JSON has no lone surrogates."""
    return text.encode("utf-8", "backslashreplace").decode()


def escaped(json: str) -> str:
    r"""Return JSON with every character that a terminal obeys or nobody sees as ``\uXXXX``: its value stays."""
    return _UNPRINTABLE.sub(lambda found: _escape(found[0]), json)


def ascii_only(json: str) -> str:
    r"""Return JSON with every character beyond ASCII as ``\uXXXX``: its value stays."""
    return re.sub(r"[^\x00-\x7f]", lambda found: _escape(found[0]), json)


def _escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def plain(text: str) -> str:
    """Return ``text`` without escape sequences and without characters that are not seen; tabs and newlines stay."""
    return _UNPRINTABLE.sub("", _ESCAPE_SEQUENCE.sub("", text))


def one_line(text: str) -> str:
    """Return :func:`plain` text on one line, without space at its ends or doubled."""
    return " ".join(plain(text).split())


def counted(number: int, noun: str) -> str:
    """Return ``1 GPU``, ``2 GPUs``: a number and what it counts; a noun that ends in s gets -es, as ``process``."""
    ending = "" if number == 1 else "es" if noun.endswith("s") else "s"
    return f"{number} {noun}{ending}"


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
