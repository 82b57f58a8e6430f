"""Lists the probes without importing them, because the import would take longer than the rest of ``gpudiag list``.

Names come from the files, descriptions from an index that ``scripts/docs.py`` writes with the pages. If the index lacks
a probe, it is not used at all.
"""

from __future__ import annotations

import json
import pkgutil
import textwrap
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import NamedTuple

import gpudiag.probes
from gpudiag.errors import UsageError, nearest

INDEX = Path(gpudiag.probes.__path__[0], "index.json")
LEAST_SUMMARY_WIDTH = 40
"""With fewer columns for the summaries, the table shows them below the names."""


class Listed(NamedTuple):
    """A probe in the list."""

    name: str
    """``<area>.<name>``."""
    level: str
    needs: str
    summary: str


@cache
def names() -> tuple[str, ...]:
    """Return the names of the probes, ordered by area as a user meets them and then by name."""
    folder = gpudiag.probes.__path__[0]
    return tuple(
        f"{area}.{probe.name}"
        for area in gpudiag.probes.AREAS
        for probe in pkgutil.iter_modules([str(Path(folder, area))])
    )


def chosen(patterns: Sequence[str]) -> tuple[str, ...]:
    """Return the names that ``patterns`` (areas, names, globs) choose, all of them if there is no pattern.

    Raises :class:`UsageError` for a pattern that chooses nothing.
    """
    found = set[str]()
    for pattern in patterns:
        matched = {name for name in names() if pattern == name.partition(".")[0] or fnmatchcase(name, pattern)}
        if not matched:
            known = [*names(), *gpudiag.probes.AREAS]
            raise UsageError(f"No probe or area matches {pattern!r}. {nearest(pattern, known)} See 'gpudiag list'.")
        found |= matched
    return tuple(name for name in names() if name in found or not patterns)


def listed(patterns: Sequence[str] = (), index: Path = INDEX) -> tuple[Listed, ...] | None:
    """Return the index's entries of the probes that ``patterns`` choose; None if the index lacks one of them."""
    wanted = chosen(patterns)
    try:
        known = {entry[0]: Listed(*entry) for entry in json.loads(index.read_text(encoding="utf-8"))}
        return tuple(known[name] for name in wanted)
    except (OSError, ValueError, TypeError, KeyError):
        return None


def text(rows: Iterable[Listed], width: int) -> str:
    """Return the output of ``gpudiag list`` in ``width`` columns: a table or, if that is too narrow, paragraphs."""
    rows = list(rows)
    left = width - sum(max(len(row[column]) for row in rows) + 2 for column in (0, 1, 2))
    if left < LEAST_SUMMARY_WIDTH:
        return "".join(_paragraph(row, width) for row in rows)
    head = Listed("probe", "level", "needs", "what it shows")
    return "".join(_lines([head, None, *rows], left))


def _paragraph(row: Listed, width: int) -> str:
    lines = [row.name, *(_filled(text, width - 4) for text in (row.summary, f"({row.level}; needs {row.needs})"))]
    return "\n".join([lines[0], *(textwrap.indent(line, "    ") for line in lines[1:])]) + "\n"


def _lines(rows: Sequence[Listed | None], left: int) -> Iterable[str]:
    """Yield the lines of a table, its last column ``left`` wide; None: a rule."""
    texts = [row for row in rows if row is not None]
    widths = [max(len(row[column]) for row in texts) for column in (0, 1, 2)]
    last = max(len(line) for row in texts for line in _filled(row.summary, left).splitlines())
    for row in rows:
        if row is None:
            yield "  ".join("-" * width for width in (*widths, last)) + "\n"
            continue
        first, *more = _filled(row.summary, left).splitlines()
        yield "  ".join((*(cell.ljust(width) for cell, width in zip(row[:3], widths, strict=True)), first)) + "\n"
        yield from (" " * (sum(widths) + 6) + line + "\n" for line in more)


def _filled(text: str, width: int) -> str:
    return textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False)
