"""Reads the log of the user's program, of any length: its beginning, its end, and the lines about GPUs in between.

The cost is bounded: the ends are read line by line, the rest is searched for words
(:mod:`gpudiag.knowledge.log_sieve`), and at most :data:`MOST_CHARACTERS` are kept.
"""

from __future__ import annotations

import codecs
import io
import os
import re
import select
import stat
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from gpudiag.errors import UsageError
from gpudiag.knowledge.log_lines import LogExcerpt, shortened, unwrapped
from gpudiag.knowledge.log_sieve import Sieve
from gpudiag.text import say

MOST_LINES = 2000
MOST_LINE_CHARACTERS = 2000
"""The most characters of a line, so that a report stays small."""
MOST_BYTES = 1 << 28
"""The most bytes that are searched: of a longer file its two ends, of a longer stream its beginning and its last
:data:`_STREAM_END`."""
MOST_STREAM_BYTES = 1 << 34
"""The most bytes that are read of a stream to find its end: one that never ends must not be read for ever."""
_STREAM_END = 1 << 24
MOST_CHARACTERS = 1 << 19
"""The most characters of all kept lines, because searching a long line for causes costs more than linear time."""
_LONGEST_LINE = 1 << 14
"""The most characters of a line that are read; the rest is ignored."""
_FIRST = 600
_BETWEEN = 600
_CHUNK = 1 << 20
_POLL_S = 0.2
SILENCE_S = 60.0
"""How long a pipe that nobody named may be silent before anything was read from it. TensorFlow's import takes up to a
minute on a slow network file system."""
_WAITING_S = 3.0
_MACHINE = "for this machine: gpudiag why < /dev/null"
_PIPE_OR_MACHINE = (
    "For a program's log, pipe its standard error, too: python program.py 2>&1 | gpudiag why\n"
    "To examine this machine instead: gpudiag why < /dev/null"
)

_NO_TEXT = re.compile(r"[\0-\x08\x0e-\x1a\x1c-\x1f\ufffd]")
"""Characters that programs hardly ever print; a few are allowed, because a log that was cut can have a hole."""


class LogText(NamedTuple):
    """The part of a log that was read."""

    lines: tuple[str, ...]
    """The lines of the log, at most :data:`MOST_LINES`."""
    notes: tuple[str, ...]
    """A sentence about each part that was not read, or not line by line."""

    @property
    def is_empty(self) -> bool:
        return not any(line.strip() for line in self.lines)


def read(path: Path, stopped: Callable[[], bool], option: str = "--log ") -> LogText:
    """Read the log at ``path`` (``-``: standard input).

    Messages name the log after its ``option``. ``stopped`` is called regularly; once it returns true, reading ends.
    Raises ``UsageError`` for a log that is not text or cannot be read.
    """
    name = option + ("standard input" if str(path) == "-" else str(path))
    if str(path) != "-":
        file = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    elif sys.stdin is None:
        raise UsageError(f"{option}-: standard input is closed. Name a file, or pipe the log in.")
    else:
        file = os.dup(sys.stdin.fileno())
    text = _read(file, name, stopped)
    if text.is_empty:
        say(f"gpudiag: note: {name} is empty: nothing of the program was read")
    for note in text.notes:
        say(f"gpudiag: note: {note}")
    return text


def is_piped() -> bool:
    """Return whether standard input is a pipe or a file, as in ``cat app.log | gpudiag why``, or a socket with data.

    A terminal and /dev/null (cron jobs of systemd, ``docker run`` without ``-i``) hold no log that somebody piped in.
    A socket, as of ssh or of a supervisor, may stay silent for ever: if it has no data yet, a line says that it is not
    read.
    """
    if sys.stdin is None:
        return False
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError):
        return False
    if stat.S_ISSOCK(mode):
        if _has_data(sys.stdin.fileno()):
            return True
        say("gpudiag: standard input is a socket without data and is not read; to read a log from it: gpudiag why -")
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode)


def _has_data(descriptor: int) -> bool:
    """Return whether a socket has data that was not read."""
    import socket

    try:
        with socket.socket(fileno=os.dup(descriptor)) as peeked:
            return bool(peeked.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    except OSError:  # there is none yet, or the socket is not connected
        return False


def read_piped(stopped: Callable[[], bool], *, quiet: bool) -> LogText:
    """Read the log that was piped in, and say so unless ``quiet``: the input may have been meant for somebody else.

    Raises ``UsageError`` if it is empty, as standard input is in jobs of GitHub and GitLab, and if nothing comes for
    :data:`SILENCE_S`: ``ssh host gpudiag why`` has a pipe that stays open and silent.
    """
    begun = time.monotonic()
    is_waiting_said = quiet
    while sys.platform != "win32" and not stopped() and not select.select([sys.stdin], [], [], _POLL_S)[0]:
        waited_s = time.monotonic() - begun
        if waited_s > SILENCE_S:
            raise UsageError(f"nothing was piped into gpudiag why for {SILENCE_S:g} s. {_PIPE_OR_MACHINE}")
        if waited_s > _WAITING_S and not is_waiting_said:
            say(f"gpudiag: waiting for standard input; {_MACHINE}")
            is_waiting_said = True
    assert sys.stdin is not None
    text = _read(os.dup(sys.stdin.fileno()), "standard input", stopped)
    if text.is_empty and not stopped():
        raise UsageError(f"nothing was piped into gpudiag why: standard input is empty. {_PIPE_OR_MACHINE}")
    if not quiet:
        say(f"gpudiag: the log is standard input; {_MACHINE}")
    for note in text.notes:
        say(f"gpudiag: note: {note}")
    return text


def _read(file: int, name: str, stopped: Callable[[], bool]) -> LogText:
    """Read the log ``name`` from an open file, and close it."""
    kept, sieve, notes = LogExcerpt(_FIRST, _BETWEEN, MOST_LINES), Sieve(), list[str]()
    texts = _texts(_chunks(file, stopped, notes), name)
    try:
        for line in unwrapped(_cut(sieve.lines(texts), _LONGEST_LINE, MOST_LINE_CHARACTERS)):
            kept.add(line)
    finally:
        os.close(file)
    lines = kept.lines
    if sum(map(len, lines)) > MOST_CHARACTERS:
        lines = tuple(_cut(lines, MOST_LINE_CHARACTERS, MOST_CHARACTERS // MOST_LINES))
        notes.append(f"lines were cut to {MOST_CHARACTERS // MOST_LINES} characters and their messages")
    few = [f"{len(lines)} lines were kept"] if len(lines) < kept.count or sieve.note else []
    text = LogText(lines, tuple(f"{name}: {note}" for note in (*notes, sieve.note, *few) if note))
    return text._replace(notes=()) if text.is_empty else text


def _cut(lines: Iterable[str], longest: int, characters: int) -> Iterator[str]:
    """Yield the lines, each cut to this many ``characters``, with the messages in its first ``longest`` characters."""
    return (shortened(line[:longest], characters) if len(line) > characters else line for line in lines)


def _chunks(file: int, stopped: Callable[[], bool], notes: list[str]) -> Iterator[bytes]:
    """Yield the contents of an open file; of one that is too long its two ends, with a note."""
    size = os.fstat(file).st_size if stat.S_ISREG(os.fstat(file).st_mode) else None
    raw = _raw(file, stopped, waits=size is None)
    if size is not None and size > MOST_BYTES:
        notes.append(f"its first and its last {MOST_BYTES >> 21} MiB were read")
        yield from _up_to(raw, MOST_BYTES // 2)
        os.lseek(file, size - MOST_BYTES // 2, os.SEEK_SET)
        yield b"\n"
        yield from _up_to(raw, MOST_BYTES // 2)
        return
    yield from _up_to(raw, MOST_BYTES)
    last = deque[bytes]()
    rest = held = 0
    for chunk in _up_to(raw, MOST_STREAM_BYTES):
        rest += len(chunk)
        held += len(chunk)
        last.append(chunk)
        while held - len(last[0]) >= _STREAM_END:
            held -= len(last.popleft())
    if rest > held:
        notes.append(f"its first {MOST_BYTES >> 20} MiB and its last {held >> 20} MiB were read")
        yield b"\n"
    yield from last
    if rest >= MOST_STREAM_BYTES:
        notes.append(f"what follows {rest + MOST_BYTES >> 30} GiB was not read")


def _up_to(raw: Iterator[bytes], most: int) -> Iterator[bytes]:
    """Yield blocks until they hold this many bytes."""
    done = 0
    while done < most and (chunk := next(raw, b"")):
        done += len(chunk)
        yield chunk


def _raw(file: int, stopped: Callable[[], bool], *, waits: bool) -> Iterator[bytes]:
    """Yield what is read from a file to its end; ``waits``: it may have to wait for what comes."""
    while not stopped():
        if waits and sys.platform != "win32" and not select.select([file], [], [], _POLL_S)[0]:
            continue
        try:
            chunk = os.read(file, _CHUNK)
        except BlockingIOError:
            time.sleep(_POLL_S)
            continue
        if not chunk:
            return
        yield chunk


def _texts(chunks: Iterator[bytes], name: str) -> Iterator[str]:
    """Yield the text in blocks of whole lines; an endless line is cut to its beginning."""
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
                raise UsageError(
                    f"{name} is not text. A log is the output of a program: python program.py > app.log 2>&1"
                )
        else:
            text = decoder.decode(chunk)
        whole, newline, after = text.rpartition("\n")
        if newline:
            yield f"{rest}{whole}\n"
            rest = after
        else:
            rest = (rest + text)[:_LONGEST_LINE]
    if rest:
        yield rest
