"""Examples of the probes of the host: facts, and the kinds of findings that must be found in them. A file a probe."""

from __future__ import annotations

import importlib

from gpudiag.model.facts import Facts
from gpudiag.model.report import Limits
from gpudiag.record import Record


class Case(Record):
    """Facts, and what is found in them."""

    name: str
    expect: tuple[str, ...]
    """Kinds of findings."""
    facts: Facts
    limits: Limits = Limits()


def cases(probe: str) -> tuple[Case, ...]:
    """Return the examples of a probe, such as ``host.driver``."""
    found: tuple[Case, ...] = importlib.import_module(f"{__name__}.{probe.partition('.')[2]}").CASES
    return found
