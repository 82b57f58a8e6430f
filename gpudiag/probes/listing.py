"""Lists the probes without importing them, because the import would take longer than the rest of ``gpudiag list``.

Names come from the files, descriptions from an index that ``scripts/docs.py`` writes with the pages. If the index lacks
a probe, it is not used at all.
"""

from __future__ import annotations

import json
import pkgutil
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import NamedTuple

import gpudiag.probes
from gpudiag.errors import UsageError, nearest, sentences

INDEX = Path(gpudiag.probes.__path__[0], "index.json")
VERIFYING = "discovery.logical_devices"
"""The probe that verifies a kernel on each GPU in the shortest time, at every level."""
FORMATS = ("table", "tsv", "names", "json")
LEAST_SUMMARY_WIDTH = 60
"""With fewer columns for the summaries, the table has no columns for the level and the needs."""


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
    for pattern in patterns:
        if not any(matches(name, [pattern]) for name in names()):
            known = [*names(), *gpudiag.probes.AREAS]
            raise UsageError(
                sentences(f"no probe or area matches {pattern!r}.", nearest(pattern, known), "See 'gpudiag list'.")
            )
    return tuple(name for name in names() if not patterns or matches(name, patterns))


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Return whether one of ``patterns`` (areas, names, globs) chooses the probe called ``name``."""
    return any(pattern == name.partition(".")[0] or fnmatchcase(name, pattern) for pattern in patterns)


def listed(patterns: Sequence[str] = (), index: Path = INDEX) -> tuple[Listed, ...] | None:
    """Return the index's entries of the probes that ``patterns`` choose; None if the index lacks one of them."""
    wanted = chosen(patterns)
    try:
        known = {entry[0]: Listed(*entry) for entry in json.loads(index.read_text(encoding="utf-8"))}
        return tuple(known[name] for name in wanted)
    except (OSError, ValueError, TypeError, KeyError):
        return None


def text(rows: Iterable[Listed], width: int, kind: str = "table") -> str:
    """Return the output of ``gpudiag list``, of a :data:`FORMATS`; only the table depends on ``width``."""
    rows = list(rows)
    if kind == "names":
        return "".join(f"{row.name}\n" for row in rows)
    if kind == "tsv":
        return "".join("\t".join(row) + "\n" for row in rows)
    if kind == "json":
        return json.dumps([row._asdict() for row in rows], indent=2) + "\n"
    return "".join(_table(rows, width))


def _table(rows: list[Listed], width: int) -> Iterator[str]:
    """Yield the lines of a table with a group for each area; in a narrow one level and needs follow the summary."""
    named = [row._replace(name=f"  {row.name.partition('.')[2]}") for row in rows]
    columns = [max(len(row[column]) for row in named) + 2 for column in (0, 1, 2)]
    wide = width - sum(columns) >= LEAST_SUMMARY_WIDTH
    left = sum(columns) if wide else columns[0] if width - columns[0] >= LEAST_SUMMARY_WIDTH // 2 else 4
    area = ""
    for row, whole in zip(named, rows, strict=True):
        if area != (area := whole.name.partition(".")[0]):
            yield f"{area}\n"
        head = "".join(cell.ljust(column) for cell, column in zip(row[: 3 if wide else 1], columns, strict=False))
        summary = row.summary if wide else f"{row.summary} ({row.level}; needs {row.needs})"
        first, *more = _filled(summary, width - left).splitlines()
        yield f"{head}{first}\n" if left > 4 else f"{head.rstrip()}\n    {first}\n"
        yield from (" " * left + line + "\n" for line in more)


def _filled(text: str, width: int) -> str:
    return textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False)
