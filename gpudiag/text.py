"""Text: made safe to show (terminals obey escape sequences; XML and tables forbid them), and written.

Text written by :func:`say` and :func:`put` contains nothing that a terminal would obey.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Sequence
from typing import TextIO

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

_PLAIN_WORD = re.compile(r"(?:the|an?|this|these|no|in|on|at|part|one|two|several|every|each|some) ")


def printable(text: str) -> str:
    """Return ``text`` with undecodable bytes of the operating system as escapes: JSON has no lone surrogates."""
    return text.encode("utf-8", "backslashreplace").decode()


def escaped(json: str) -> str:
    r"""Return JSON with control and invisible characters as ``\uXXXX``; the value is unchanged."""
    return _UNPRINTABLE.sub(lambda found: _escape(found[0]), json)


def ascii_only(json: str) -> str:
    r"""Return JSON with every character beyond ASCII as ``\uXXXX``; the value is unchanged."""
    return re.sub(r"[^\x00-\x7f]", lambda found: _escape(found[0]), json)


def _escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def plain(text: str) -> str:
    """Return ``text`` without escape sequences and invisible characters; tabs and newlines stay."""
    if text.isascii() and text.isprintable():  # nearly all lines
        return text
    return _UNPRINTABLE.sub("", _ESCAPE_SEQUENCE.sub("", text))


def one_line(text: str) -> str:
    """Return :func:`plain` text on one line, with single spaces and none at its ends."""
    return " ".join(plain(text).split())


def counted(number: int, noun: str, separator: str = "") -> str:
    """Return ``1 GPU``, ``2 GPUs``: a number and what it counts; a noun that ends in s gets -es, as ``process``.

    ``separator`` is put between thousands.
    """
    ending = "" if number == 1 else "es" if noun.endswith("s") else "s"
    return f"{number:{separator}} {noun}{ending}"


def size(number: float) -> str:
    """Return a number of bytes for a person: in bytes, in KiB from 10 KiB on, in MiB from 1 MiB on."""
    if number >= 1 << 20:
        return f"{number / (1 << 20):,.0f} MiB"
    return f"{number / 1024:,.0f} KiB" if number >= 10_240 else counted(round(number), "byte", ",")


def listed(names: Sequence[str], most: int = 3) -> str:
    """Return ``a, b and c``, or ``a, b, c and 2 more``."""
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def with_names(template: str) -> str:
    """Return a format string with the names of its figures in angle brackets."""
    return template.format_map(_Names())


class _Name(str):
    """A figure's name; it looks alike in every format."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)

    def __format__(self, specification: str) -> str:
        return str(self)


class _Names(dict[str, _Name]):
    """A mapping that gives every figure its own name."""

    def __missing__(self, name: str) -> _Name:
        return _Name(f"<{name}>")


def say(text: str) -> None:
    """Write a message to standard error; a closed or full stream is ignored, because it must not end a run."""
    with contextlib.suppress(OSError, ValueError):
        _write(sys.stderr, f"{plain(text)}\n")


def put(text: str, format_: str = "table", *, color: bool = False) -> None:
    """Write a text of this format to standard output; characters that its encoding lacks are written as escapes.

    ``color`` is for a table that was rendered with it: its escape sequences are gpudiag's own. Raises ``OSError`` if
    standard output cannot be written.
    """
    unicode = _is_unicode(sys.stdout)
    if format_ == "json":
        text = escaped(text) if unicode else ascii_only(text)
    elif format_ in ("junit", "html"):  # they say that they are UTF-8, of which ASCII is a part
        text = plain(text) if unicode else plain(text).encode("ascii", "xmlcharrefreplace").decode()
    elif not color:
        text = plain(text)
    try:
        _write(sys.stdout, text)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OSError(error.errno, error.strerror, "standard output") from None


def _write(stream: TextIO | None, text: str) -> None:
    if stream is not None:  # None: closed when this process was started
        stream.write(encoded(text, stream).decode(_encoding(stream)))
        stream.flush()


def encoded(text: str, stream: TextIO | None) -> bytes:
    """Return the bytes of a text for a stream; characters that its encoding lacks become signs of ASCII, or escapes."""
    if not _is_unicode(stream):
        text = text.replace("·", "-")
    return text.encode(_encoding(stream), "backslashreplace")


def _is_unicode(stream: TextIO | None) -> bool:
    return _encoding(stream).lower().replace("-", "") == "utf8"


def _encoding(stream: TextIO | None) -> str:
    return getattr(stream, "encoding", None) or "utf-8"  # a StringIO has none


def capitalised(text: str) -> str:
    """Return a sentence with a capital letter, unless it begins with a name, such as that of a file or a command."""
    return text[:1].upper() + text[1:] if _PLAIN_WORD.match(text) else text
