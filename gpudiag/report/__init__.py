"""Renderers: each turns a report into text and nothing else. They count and judge nothing; the model does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gpudiag.errors import UsageError

if TYPE_CHECKING:
    from gpudiag.model import Report

FORMATS = ("table", "json", "markdown", "junit")

_SUFFIXES = {".txt": "table", ".json": "json", ".md": "markdown", ".xml": "junit"}


def format_of(path: Path) -> str:
    """Return the format that the suffix of ``path`` means; raises :class:`UsageError` for any other suffix."""
    try:
        return _SUFFIXES[path.suffix.lower()]
    except KeyError:
        *others, last = _SUFFIXES
        raise UsageError(
            f"{path}: the format of a report follows from the suffix of its file: write {', '.join(others)} or {last}."
        ) from None


def render(report: Report, format_: str, *, width: int, color: bool, verbose: bool = False, head: bool = False) -> str:
    """Return ``report`` in one of :data:`FORMATS`, with a final newline.

    Only the table uses ``width`` (columns) and ``color``. ``verbose`` adds where operations ran and more of the log of
    broken probes; JSON always has everything. ``head``: the table and Markdown end after the diagnosis.
    """
    match format_:
        case "json":
            from gpudiag import codec

            return codec.encode(report)
        case "markdown":
            from gpudiag.report import markdown

            return markdown.render(report, verbose=verbose, head=head)
        case "junit":
            from gpudiag.report import junit

            return junit.render(report)
        case "table":
            from gpudiag.report import table

            return table.render(report, width=width, color=color, verbose=verbose, head=head)
    raise ValueError(f"no format is called {format_!r}")
