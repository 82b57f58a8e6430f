"""How the processes of a probe of level stress work together: they wait for each other, count time from one moment, and
note in files what they measure.

The notes of a process are read when it has ended, however it ended: a GPU that falls off the bus after a minute costs
the rest of its own row, and nothing of the others'.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

from gpudiag import folders
from gpudiag.probe import Slice

POLL_S = 0.01
REST_S = 0.5
"""The longest sleep of a process that rests: one that sleeps for long would look like one in a call that hangs."""


class Company:
    """Implements :class:`gpudiag.probe.Load` in a child process.

    Files are used because they work wherever a child can be started, without inheriting anything.
    """

    def __init__(self, folder: str, number: int, count: int, seconds: float) -> None:
        self._folder = Path(folder)
        self.number, self.count, self.seconds = number, count, seconds
        self._began = time.monotonic()

    def meet(self, name: str, told: object = None) -> list[Any]:
        folders.write(self._folder / f"{name}.{self.number}", json.dumps(told))
        waits = _waits(self._folder, self.number)
        waits.touch()
        try:
            return self._met(name)
        finally:
            folders.remove(waits)

    def _met(self, name: str) -> list[Any]:
        while True:
            # Ask first who has ended: all that such a process wrote is there by then.
            gone = {number for number in range(self.count) if _gone(self._folder, number).exists()}
            came = {number: self._folder / f"{name}.{number}" for number in range(self.count)}
            there = {number for number, file in came.items() if file.exists()}
            if gone | there == {*came}:
                return [json.loads(came[number].read_text()) for number in sorted(there)]
            time.sleep(POLL_S)

    def start(self) -> None:
        # CLOCK_MONOTONIC is one clock for all processes of a Linux system.
        self._began = max(self.meet("start", time.monotonic()))
        folders.write(_start_of(self._folder, self.number), json.dumps(self._began))

    def now(self) -> float:
        return time.monotonic() - self._began

    def rest(self, until_s: float) -> None:
        while (left_s := until_s - self.now()) > 0:
            self._live()
            time.sleep(min(left_s, REST_S))

    def _live(self) -> None:
        """Give a sign of life."""
        _sign(self._folder, self.number).touch()

    def note(self, part: Slice) -> None:
        self._live()
        with _notes_of(self._folder, self.number).open("ab") as notes:
            notes.write(msgspec.json.encode(part) + b"\n")


@dataclass(frozen=True)
class LoadOrder:
    """What a process of a probe of level stress needs to know; in the parent, the way to what the process has noted."""

    folder: Path
    """The folder of the probe's processes."""
    number: int
    count: int
    seconds: float

    @property
    def argument(self) -> dict[str, Any]:
        """The order as JSON."""
        return {**asdict(self), "folder": str(self.folder)}

    @property
    def begun(self) -> bool:
        """True from the time when all processes of the probe were ready."""
        return _start_of(self.folder, self.number).exists()

    @property
    def waits(self) -> bool:
        """True while the process waits for the others."""
        return _waits(self.folder, self.number).exists()

    def last_sign(self) -> int:
        """Return a number that changes with each sign of life of the process."""
        try:
            return _sign(self.folder, self.number).stat().st_mtime_ns
        except OSError:
            return 0

    def leave(self) -> None:
        """Record that the process has ended, or is not started: the others wait for it no more."""
        with contextlib.suppress(OSError):
            _gone(self.folder, self.number).touch()

    def noted(self, run_began: float) -> dict[str, Any]:
        """Return the fields of a :class:`gpudiag.probe.LoadReading` that follow from what the process has noted, until
        now; ``run_began`` is a time of ``time.monotonic()``."""
        began_s = 0.0
        with contextlib.suppress(OSError, ValueError):  # it ended before it began
            began_s = round(float(_start_of(self.folder, self.number).read_text()) - run_began, 2)
        return {"slices": tuple(self._slices()), "planned_s": round(self.seconds, 1), "load_began_s": began_s}

    def _slices(self) -> Iterator[Slice]:
        try:
            lines = _notes_of(self.folder, self.number).read_bytes().splitlines()
        except OSError:  # it ended before it began
            return
        for line in lines:
            with contextlib.suppress(msgspec.MsgspecError):  # cut short
                yield msgspec.json.decode(line, type=Slice)


def _notes_of(folder: Path, number: int) -> Path:
    return folder / f"notes.{number}"


def _start_of(folder: Path, number: int) -> Path:
    return folder / f"began.{number}"


def _sign(folder: Path, number: int) -> Path:
    return folder / f"sign.{number}"


def _waits(folder: Path, number: int) -> Path:
    return folder / f"waits.{number}"


def _gone(folder: Path, number: int) -> Path:
    return folder / f"gone.{number}"
