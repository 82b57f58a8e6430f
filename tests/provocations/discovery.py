"""What provokes the probes of the area discovery."""

from __future__ import annotations

from provocations import Altered, OnMachine

PROVOCATIONS: tuple[OnMachine | Altered, ...] = ()
