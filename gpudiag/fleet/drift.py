"""Finds facts in which some nodes differ from the majority."""

from __future__ import annotations

from gpudiag.fleet.nodes import NodeTable
from gpudiag.model.fleet import Drift


def drift(table: NodeTable) -> tuple[Drift, ...]:
    """Return facts in which some nodes differ from the majority."""
    del table
    return ()
