"""JSON: the result, unchanged."""

from __future__ import annotations

import msgspec

from gpudiag.lint.result import Result


def render(result: Result, **_: object) -> str:
    """Return the result; ``findings`` and ``problems`` are lists."""
    return msgspec.json.format(msgspec.json.encode(result), indent=2).decode() + "\n"
