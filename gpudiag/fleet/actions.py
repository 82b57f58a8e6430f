"""Finds what has to be done, and on how many nodes."""

from __future__ import annotations

from gpudiag.fleet.nodes import NodeTable
from gpudiag.model.fleet import ActionSum


def summed(table: NodeTable) -> tuple[ActionSum, ...]:
    """Return what has to be done, and on how many nodes."""
    del table
    return ()
