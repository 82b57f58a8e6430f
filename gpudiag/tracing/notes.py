"""Reads the notes that the watcher left: whatever a program did to them, what can be read is kept."""

from __future__ import annotations

import ast
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpudiag.tracing.inside.gpudiag_watch.notes import (
    DROPPED,
    FREQUENT,
    FREQUENT_AT,
    HEAD,
    LAST_OP,
    LAST_OP_AT,
    NOTES,
    NOTES_AT,
    RAN_AT,
    SIZE,
    SLOTS,
    USED,
)

Note = dict[str, Any]


@dataclass(frozen=True)
class Notes:
    """The notes of one process."""

    notes: tuple[Note, ...]
    counters: tuple[int, ...]
    """The words of the file: a note of a counter names its own."""
    last_op: int
    """The counter of the last operation."""
    last_op_at: float
    """When the last operation ended, in seconds since the epoch; 0: none did."""
    lost: int

    def of(self, *kinds: str) -> Iterator[Note]:
        """Yield the notes of these kinds, in order."""
        return (note for note in self.notes if note["k"] in kinds)

    def count(self, note: Note, word: int = 0) -> int:
        """Return a word of the counter of a note; 0 if it has none."""
        slot = note["slot"] + word
        return self.counters[slot] if 0 <= slot < len(self.counters) else 0

    def first(self, kind: str) -> Note:
        """Return the first note of this kind; empty if there is none."""
        return next(self.of(kind), {})


def read(folder: Path) -> list[Notes]:
    """Return the notes of every process, in the order in which the processes began."""
    found = [notes for file in sorted(folder.glob("*.*")) if (notes := _read(file)) is not None]
    return sorted(found, key=lambda process: float(process.notes[0]["t"]))


def _read(file: Path) -> Notes | None:
    try:
        content = file.read_bytes()
    except OSError:
        return None
    if len(content) != SIZE:
        return None
    words = list(struct.unpack_from(f"={HEAD + SLOTS}Q", content))
    _count(words, struct.unpack_from(f"={FREQUENT}H", content, FREQUENT_AT), content[RAN_AT:NOTES_AT])
    lines = content[NOTES_AT : NOTES_AT + min(words[USED], NOTES)].decode("utf-8", "replace").splitlines()
    notes = tuple(note for line in lines if (note := _note(line)) is not None)
    if not notes:
        return None
    _shorten(notes)
    return Notes(notes, tuple(words), words[LAST_OP], words[LAST_OP_AT] / 1e6, words[DROPPED])


def _count(words: list[int], frequent: Sequence[int], ran: bytes) -> None:
    """Count the operations that the watcher had not counted itself."""
    for number in set(ran) - {0}:
        if HEAD <= frequent[number] < len(words):
            words[frequent[number]] += ran.count(number)


def _shorten(notes: tuple[Note, ...]) -> None:
    """Write the lines of files in the folder that the process began in as from there."""
    folder = str(notes[0].get("folder") or "/").rstrip("/") + "/"
    for note in notes:
        if isinstance(line := note.get("line"), str):
            note["line"] = line.removeprefix(folder)
        if note["k"] == "graph":
            note["cpu"] = [(*row[:4], row[4].removeprefix(folder), *row[5:]) for row in note["cpu"]]


def _note(line: str) -> Note | None:
    try:
        note = ast.literal_eval(line)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    return note if isinstance(note, dict) and "k" in note and isinstance(note.get("t"), float) else None
