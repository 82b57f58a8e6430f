"""The output formats of the lint: one file for each, with ``render(result, *, width, color, terminal)``."""

from __future__ import annotations

import importlib
import pkgutil

from gpudiag.lint.result import Result

FORMATS = ("text", *(module.name for module in pkgutil.iter_modules(__path__) if module.name != "text"))


def render(result: Result, format_: str, *, width: int, color: bool, terminal: bool = False) -> str:
    """Return ``result`` in one of :data:`FORMATS`, with a final newline; ``terminal``: for a person, not a program."""
    module = importlib.import_module(f"{__name__}.{format_}")
    text: str = module.render(result, width=width, color=color, terminal=terminal)
    return text
