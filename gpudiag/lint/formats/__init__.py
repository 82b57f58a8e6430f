"""The formats of what a lint finds: a file each, with ``render(result, *, width, color)``."""

from __future__ import annotations

import importlib
import pkgutil

from gpudiag.lint.result import Result

FORMATS = ("text", *(one.name for one in pkgutil.iter_modules(__path__) if one.name != "text"))


def render(result: Result, format_: str, *, width: int, color: bool) -> str:
    """Return ``result`` in one of :data:`FORMATS`, with a final newline."""
    module = importlib.import_module(f"{__name__}.{format_}")
    text: str = module.render(result, width=width, color=color)
    return text
