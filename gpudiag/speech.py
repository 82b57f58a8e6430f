"""The one door to standard output and standard error: nothing leaves by it that a terminal would obey."""

from __future__ import annotations

import contextlib
import sys
from typing import TextIO

from gpudiag.plaintext import ascii_only, escaped, plain


def say(text: str) -> None:
    """Write a message to standard error, if it can be written: a closed or full one must not change how a run ends."""
    with contextlib.suppress(OSError, ValueError):
        _write(sys.stderr, f"{plain(text)}\n")


def put(text: str, format_: str = "table", *, color: bool = False) -> None:
    """Write a text of this format to standard output; characters that its encoding lacks are written as escapes.

    ``color`` is for a table that was rendered with it: its escape sequences are gpudiag's own. Raises ``OSError`` if
    standard output cannot be written.
    """
    unicode = _encoding(sys.stdout).lower().replace("-", "") == "utf8"
    if format_ == "json":
        text = escaped(text) if unicode else ascii_only(text)
    elif format_ == "junit":  # its first line says UTF-8, of which ASCII is a part
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
        stream.write(text.encode(_encoding(stream), "backslashreplace").decode(_encoding(stream)))
        stream.flush()


def _encoding(stream: TextIO | None) -> str:
    return getattr(stream, "encoding", None) or "utf-8"  # a StringIO has none
