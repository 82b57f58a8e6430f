"""What provokes the probes of the area host."""

from __future__ import annotations

from provocations import Altered, OnMachine

PROVOCATIONS: tuple[OnMachine | Altered, ...] = ()
