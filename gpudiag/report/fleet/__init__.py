"""Renderers of a fleet's report: each turns it into text and nothing else.

A format is a file of :mod:`gpudiag.report.fleet.formats`, found by walking that. It has ``render(report, *, width,
color)``, which may ignore arguments, and ``SUFFIX``: the suffix of its files.
"""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpudiag.errors import UsageError
from gpudiag.report.fleet import formats

if TYPE_CHECKING:
    from gpudiag.model.fleet import FleetReport

_FIRST = ("table", "json")
FORMATS = (*_FIRST, *(module.name for module in pkgutil.iter_modules(formats.__path__) if module.name not in _FIRST))


def _module(format_: str) -> Any:
    return importlib.import_module(f"{formats.__name__}.{format_}")


def is_report(path: Path) -> bool:
    """Return whether a file of this name has the suffix of a format."""
    return path.suffix.lower() in {_module(name).SUFFIX for name in FORMATS}


def format_of(path: Path) -> str:
    """Return the format that the suffix of a file means; raises :class:`UsageError` for any other suffix."""
    suffixes: dict[str, str] = {_module(name).SUFFIX: name for name in FORMATS}
    try:
        return suffixes[path.suffix.lower()]
    except KeyError:
        *others, last = suffixes
        raise UsageError(
            f"{path}: the format of a report follows from the suffix of its file: write {', '.join(others)} or {last}."
        ) from None


def render(report: FleetReport, format_: str, *, width: int, color: bool) -> str:
    """Return the report in one of :data:`FORMATS`, with a final newline.

    Only the table uses ``width`` (columns) and ``color``.
    """
    if format_ not in FORMATS:
        raise ValueError(f"no format is called {format_!r}")
    text: str = _module(format_).render(report, width=width, color=color)
    return text
