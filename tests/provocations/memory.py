"""What provokes the probes of the area memory."""

from __future__ import annotations

from provocations import Altered, OnMachine

PROVOCATIONS: tuple[OnMachine | Altered, ...] = ()
