"""Writes the fixes that are safe: the intention is known, and the surrounding text stays unchanged."""

from __future__ import annotations

import ast
import difflib
import json
import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from gpudiag.folders import file_beside, put_in_place
from gpudiag.lint.check import Found
from gpudiag.lint.result import Problem
from gpudiag.lint.rule import Edit
from gpudiag.lint.sources import Piece, Source, cells_of, lines_of


def fixed(found: Sequence[Found]) -> Iterator[tuple[Source, bytes, list[Found]]]:
    """Yield each file that can be fixed, with its new content and the findings that are fixed in it.

    An edit that overlaps another, or after which the text cannot be parsed, is left out.
    """
    by_source: dict[str, list[Found]] = defaultdict(list)
    for finding in found:
        if finding.edits:
            by_source[finding.source.shown].append(finding)
    for group in by_source.values():
        source = group[0].source
        pieces: dict[int, tuple[Piece, list[Found]]] = {}
        for finding in group:
            pieces.setdefault(id(finding.piece), (finding.piece, []))[1].append(finding)
        texts: dict[int, str] = {}
        done: list[Found] = []
        for key, (piece, ones) in pieces.items():
            texts[key], applied = _edited(piece.text, ones)
            done += applied
        if done:
            content = _content(source, texts)
            if content is not None:
                yield source, content, done


def _edited(text: str, found: list[Found]) -> tuple[str, list[Found]]:
    """Return a text with the edits of as many findings as are compatible, and those findings."""
    done: list[Found] = []
    taken: list[Edit] = []
    for finding in found:
        edits = [edit for edit in finding.edits if edit not in taken]  # two rules may ask for the same
        alone = not any(_overlap(edit, other) for edit in edits for other in taken)
        if alone and _is_python(_applied(text, [*taken, *edits])):
            taken += edits
            done.append(finding)
    return _applied(text, taken), done


def _overlap(first: Edit, other: Edit) -> bool:
    return (first.line, first.column) < (other.end_line, other.end_column) and (other.line, other.column) < (
        first.end_line,
        first.end_column,
    )


def _applied(text: str, edits: list[Edit]) -> str:
    lines = [line.encode() for line in lines_of(text)]
    for edit in sorted(edits, key=lambda place: (place.line, place.column), reverse=True):
        head = lines[edit.line - 1][: edit.column]
        tail = lines[edit.end_line - 1][edit.end_column :]
        lines[edit.line - 1 : edit.end_line] = [head + edit.text.encode() + tail]
    return b"".join(lines).decode()


def _is_python(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _content(source: Source, texts: dict[int, str]) -> bytes | None:
    """Return the whole file with the new texts of its pieces; None if a notebook's layout cannot be kept."""
    if source.notebook is None:
        (text,) = texts.values()
        return text.encode(source.encoding)
    layout = _layout(source)
    if layout is None:
        return None
    for piece in source.pieces:
        if id(piece) in texts and piece.cell is not None:
            cell = cells_of(source.notebook)[piece.cell - 1]
            key = "source" if "source" in cell else "input"  # in format 3
            whole = isinstance(cell[key], str)
            cell[key] = texts[id(piece)] if whole else texts[id(piece)].splitlines(keepends=True)
    return _dumped(source.notebook, *layout)


def _layout(source: Source) -> tuple[int | None, bool, str] | None:
    """Return a notebook's layout: its indentation, whether it is ASCII, and its end; None for an unknown one."""
    text = source.raw.decode("utf-8", "replace")
    end = text[len(text.rstrip()) :]
    for indent in (1, 2, 4, None):
        for ascii_only in (False, True):
            if _dumped(source.notebook, indent, ascii_only, end) == source.raw:
                return indent, ascii_only, end
    return None


def _dumped(notebook: object, indent: int | None, ascii_only: bool, end: str) -> bytes:
    return (json.dumps(notebook, indent=indent, ensure_ascii=ascii_only) + end).encode()


def write(source: Source, content: bytes) -> Problem | None:
    """Replace the file by the new content atomically, or return why that is impossible."""
    target = Path(os.path.realpath(source.path))
    try:
        if not os.access(target, os.W_OK):
            raise PermissionError(None, "Permission denied")
        with file_beside(target, 0o600) as temporary:
            temporary.write_bytes(content)
            temporary.chmod(target.stat().st_mode & 0o7777)
            put_in_place(temporary, target)
    except OSError as error:
        return Problem(source.shown, 0, f"cannot be fixed: {error.strerror or error}")
    return None


def difference(source: Source, content: bytes) -> str:
    """Return the fixes of a file as a patch."""
    old, new = (text.decode(source.encoding).splitlines(keepends=True) for text in (source.raw, content))
    return "".join(difflib.unified_diff(old, new, f"a/{source.shown}", f"b/{source.shown}"))
