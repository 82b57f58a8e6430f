"""Renderers: each turns a report into text and nothing else. They count and judge nothing; the model does.

A format is a file of :mod:`gpudiag.report.formats`, found by walking that. It has ``render(report, *, width, color,
verbose, head)``, which may ignore arguments, and ``SUFFIX``: the suffix of its files, or "".
"""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpudiag.errors import UsageError
from gpudiag.report import formats

if TYPE_CHECKING:
    from gpudiag.model.report import Report

_FIRST = ("summary", "table", "json", "markdown", "junit")
FORMATS = (*_FIRST, *(module.name for module in pkgutil.iter_modules(formats.__path__) if module.name not in _FIRST))

FRAME = "frame"
"""The format in which a node sends its report to a fleet: see :mod:`gpudiag.model.frame`. Nobody reads it."""

LABEL = "label"
"""One line for scripts: see :func:`gpudiag.report.labels.line`."""


def _module(format_: str) -> Any:
    return importlib.import_module(f"{formats.__name__}.{format_}")


def format_of(path: Path) -> str:
    """Return the format that the suffix of ``path`` means; raises :class:`UsageError` for any other suffix."""
    suffixes = {suffix: name for name in FORMATS if (suffix := suffix_of(name))}
    try:
        return suffixes[path.suffix.lower()]
    except KeyError:
        *others, last = suffixes
        raise UsageError(
            f"{path}: the format of a report follows from the suffix of its file: write {', '.join(others)} or {last}."
        ) from None


def suffix_of(format_: str) -> str:
    """Return the suffix of the files that a format is written to; "" if ``-o`` cannot write this format."""
    suffix: str = _module(format_).SUFFIX
    return suffix


def render(report: Report, format_: str, *, width: int, color: bool, verbose: bool = False, head: bool = False) -> str:
    """Return ``report`` in one of :data:`FORMATS`, in :data:`FRAME` or :data:`LABEL`, with a final newline.

    Only the table uses ``width`` (columns) and ``color``. ``verbose`` adds where operations ran and more of the log of
    broken probes; JSON always has everything. ``head``: the table and Markdown end after the diagnosis, as they always
    do if only a log was looked at.
    """
    if format_ == FRAME:
        from gpudiag.model.codec import encoded
        from gpudiag.model.frame import framed

        return framed(encoded(report))
    if format_ == LABEL:
        from gpudiag.report.labels import line

        return line(report)
    if format_ not in FORMATS:
        raise ValueError(f"no format is called {format_!r}")
    head = head or report.is_log_alone
    text: str = _module(format_).render(report, width=width, color=color, verbose=verbose, head=head)
    return text
