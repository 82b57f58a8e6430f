"""What provokes the trace."""

from __future__ import annotations

from provocations import Altered, OnMachine

PROVOCATIONS: tuple[OnMachine | Altered, ...] = (
    OnMachine("discovery.trace", "fewer_listed", "1", ("library_missing=libcusolver.so.11",)),
    Altered("discovery.trace", "fewer_listed", {"listed": 1}),
    Altered("discovery.trace", "raised", {"raised": {"type": "InternalError", "message": "CUDA error"}}),
)
