"""Renderers of a fleet's report. A format is a file here; each has ``render(report, *, width, color)``."""

from __future__ import annotations

import importlib
from pathlib import Path

from gpudiag.errors import UsageError
from gpudiag.model.fleet import FleetReport

FORMATS = ("table", "json")
_SUFFIXES = {".txt": "table", ".json": "json"}


def format_of(path: Path) -> str:
    """Return the format that the suffix of a file means; raises :class:`UsageError` for any other suffix."""
    try:
        return _SUFFIXES[path.suffix.lower()]
    except KeyError:
        *others, last = _SUFFIXES
        raise UsageError(
            f"{path}: the format of a report follows from the suffix of its file: write {', '.join(others)} or {last}."
        ) from None


def render(report: FleetReport, format_: str, *, width: int, color: bool) -> str:
    """Return the report in one of :data:`FORMATS`, with a final newline."""
    text: str = importlib.import_module(f"{__name__}.{format_}").render(report, width=width, color=color)
    return text
