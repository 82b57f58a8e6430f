"""Lets the two processes of one probe meet."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from gpudiag import folders

MEETING_POLL_S = 0.01


class Meeting:
    """The :class:`gpudiag.probe.Peer` of a child: two processes that leave each other files in a folder.

    Files are used instead of a pipe because they work wherever a child can be started, without inheriting anything.
    """

    def __init__(self, folder: Path, own: str, other: str) -> None:
        self._folder, self._own, self._other = folder, own, other

    def meet(self, name: str, told: object = None) -> Any:
        ours, theirs = (self._folder / f"{name}.{who}" for who in (self._own, self._other))
        folders.write(ours, json.dumps(told))
        while True:
            left = self._mark(self._other).exists()  # looked at first: what came before it has left is there then
            if theirs.exists():
                return json.loads(theirs.read_text())
            if left:
                raise RuntimeError(f"the other process ended before it came to the meeting {name!r}")
            time.sleep(MEETING_POLL_S)

    def leave(self) -> None:
        """Announce that this process will not come to further meetings."""
        self._mark(self._own).touch()

    def _mark(self, who: str) -> Path:
        return self._folder / f".{who}-left"
