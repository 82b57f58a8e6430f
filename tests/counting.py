"""Counts what is done, where a test asks how the cost of something grows: a clock depends on what else is running."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def lines_run(work: Callable[[], object]) -> int:
    """Return how many lines of Python ``work`` runs, each as often as it runs; regular expressions are not seen."""
    lines = 0

    def trace(_frame: object, event: str, _value: object) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return lines
