"""Watches a process under load: a GPU that hangs makes it spin or sleep in a call, and no slice ends any more."""

from __future__ import annotations

from gpudiag.probes.under_load import MOST_SLICES
from gpudiag.run.load import LoadOrder
from gpudiag.run.standstill import HANG_S

_SLICES = 3
"""A slice counts as one that never ends after so many times its usual length."""


class LoadWatch:
    """Decides how long a process under load may still run, and whether it hangs."""

    def __init__(self, order: LoadOrder, now: float) -> None:
        self._order = order
        self._looked_at = now
        self._sign = 0
        self._silent_s = 0.0
        self._has_its_time = False

    def look(self, now: float) -> float:
        """Return by how many seconds the deadline of the process is to be extended."""
        passed_s, self._looked_at = now - self._looked_at, now
        if not self._order.begun:
            return passed_s if self._order.waits else 0.0
        # A pause of this process itself counts as a second.
        sign = self._order.last_sign()
        self._silent_s = self._silent_s + min(passed_s, 1.0) if sign == self._sign else 0.0
        self._sign = sign
        granted_s = 0.0 if self._has_its_time else self._order.seconds
        self._has_its_time = True
        return granted_s

    def hang_s(self) -> float:
        """Return for how many seconds the process has not ended a slice, if that is too long; otherwise 0."""
        return self._silent_s if self._silent_s > max(HANG_S, _SLICES * self._order.seconds / MOST_SLICES) else 0.0
