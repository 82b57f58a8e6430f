"""The log of the user's program, however long: its beginning, its end, and between them the lines about GPUs."""

from __future__ import annotations

import codecs
import io
import os
import re
import select
import stat
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from gpudiag.errors import UsageError
from gpudiag.knowledge.log_lines import Kept, shortened, unwrapped
from gpudiag.text import say

MOST_LINES = 2000
MOST_LINE_CHARACTERS = 2000
"""A report stays small."""
MOST_BYTES = 1 << 30
"""So much is read: of a longer file the two ends, of a longer stream the beginning."""
_LONGEST_LINE = 1 << 14
"""So many characters of a line are looked at."""
_FIRST = 600
_BETWEEN = 600
_CHUNK = 1 << 20
_POLL_S = 0.2

_NO_TEXT = re.compile(r"[\0-\x08\x0e-\x1a\x1c-\x1f\ufffd]")
"""Characters that no program prints, but for a few: a log that was cut can have a hole."""


def read(path: Path, stopped: Callable[[], bool], option: str = "--log ") -> tuple[str, ...]:
    """Return the lines of the log ``path`` (``-``: standard input), at most :data:`MOST_LINES` of them.

    Messages name it after the ``option`` that gave it. ``stopped`` is asked while a stream has nothing new, and now and
    then: once it is true no more is read. Raises ``UsageError`` for what is not text or cannot be read.
    """
    name = option + ("standard input" if str(path) == "-" else str(path))
    if str(path) != "-":
        file = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    elif sys.stdin is None:
        raise UsageError(f"{option}-: standard input is closed.")
    else:
        file = os.dup(sys.stdin.fileno())
    kept = Kept(_FIRST, _BETWEEN, MOST_LINES)
    try:
        for line in unwrapped(_lines(_chunks(file, name, stopped), name)):
            kept.add(line)
    finally:
        os.close(file)
    lines = kept.lines
    if not any(line.strip() for line in lines):
        say(f"gpudiag: note: {name} is empty: nothing of the program was read")
    elif len(lines) < kept.count:
        say(f"gpudiag: note: {name}: {len(lines)} of its {kept.count} lines are looked at")
    return lines


def _chunks(file: int, name: str, stopped: Callable[[], bool]) -> Iterator[bytes]:
    """Yield what an open file has; of one that is too long its two ends."""
    size = os.fstat(file).st_size if stat.S_ISREG(os.fstat(file).st_mode) else None
    halves = size is not None and size > MOST_BYTES
    done = 0
    while not stopped():
        if done >= (MOST_BYTES // 2 if halves else MOST_BYTES):
            if not halves or size is None:
                say(f"gpudiag: note: {name}: the first {MOST_BYTES >> 20} MiB were read, and not what follows")
                return
            say(f"gpudiag: note: {name}: its first and its last {MOST_BYTES >> 21} MiB were read")
            os.lseek(file, size - MOST_BYTES // 2, os.SEEK_SET)
            halves, done = False, MOST_BYTES // 2
            yield b"\n"
        if size is None and sys.platform != "win32" and not select.select([file], [], [], _POLL_S)[0]:
            continue
        try:
            chunk = os.read(file, _CHUNK)
        except BlockingIOError:
            time.sleep(_POLL_S)
            continue
        if not chunk:
            return
        done += len(chunk)
        yield chunk


def _lines(chunks: Iterator[bytes], name: str) -> Iterator[str]:
    """Yield the lines of a text, each cut to :data:`MOST_LINE_CHARACTERS`."""
    # PowerShell's > writes UTF-16, Windows's editors UTF-8 with a mark.
    marks = {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16", codecs.BOM_UTF8: "utf-8-sig"}
    decoder = None
    rest = ""
    for chunk in chunks:
        if decoder is None:
            encoding = next((encoding for mark, encoding in marks.items() if chunk.startswith(mark)), "utf-8")
            decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder(encoding)("replace"), translate=True)
            text = decoder.decode(chunk)
            begins = text[:MOST_LINE_CHARACTERS]
            if len(_NO_TEXT.findall(begins)) > len(begins) / 10:
                raise UsageError(f"{name} is not text. It is what a program prints: python program.py > app.log 2>&1")
        else:
            text = decoder.decode(chunk)
        *whole, rest = f"{rest}{text}|".splitlines()  # the mark keeps the beginning of a line apart from a whole one
        rest = rest[:-1][:_LONGEST_LINE]
        for line in whole:
            yield shortened(line[:_LONGEST_LINE], MOST_LINE_CHARACTERS)
    if rest:
        yield shortened(rest, MOST_LINE_CHARACTERS)
