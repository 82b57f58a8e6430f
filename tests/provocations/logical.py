"""What provokes the probes of the area logical."""

from __future__ import annotations

from provocations import Altered, OnMachine

PROVOCATIONS: tuple[OnMachine | Altered, ...] = ()
