"""Runs a program with the watcher inside: unchanged, in the foreground, its signals, its input and output its own."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpudiag import foreground
from gpudiag.errors import UsageError
from gpudiag.folders import Folder
from gpudiag.hardware.peers import asked
from gpudiag.model.program import ProgramTrace
from gpudiag.tracing import gather, notes, own_lines, peers, sampler
from gpudiag.tracing.inside.gpudiag_watch.notes import FOLDER

INSIDE = Path(__file__).parent / "inside"
NOTEBOOK = INSIDE / "gpudiag_notebook.py"


@dataclass(frozen=True)
class Ran:
    """A program that has run."""

    status: int
    """Its exit status, as shells say it; 128 + n for signal n."""
    trace: ProgramTrace | None
    """None: it could not be started."""


def completed(command: Sequence[str], python: str = sys.executable) -> tuple[str, ...]:
    """Return the command as it is started: a module, a Python file and a notebook are given ``python``.

    Raises ``UsageError`` for a notebook that is not there.
    """
    first = command[0]
    if first == "-m":
        return (python, *command)
    if first.endswith(".ipynb"):
        if not Path(first).is_file():
            raise UsageError(f"{first}: there is no such notebook")
        return (python, str(NOTEBOOK), *command)
    if first.endswith(".py") and Path(first).is_file() and shutil.which(first) is None:
        return (python, *command)
    return tuple(command)


def run(
    command: Sequence[str],
    environment: Mapping[str, str],
    seconds: float | None,
    *,
    simulated: bool = False,
    python: str = sys.executable,
) -> Ran:
    """Run ``command`` to its end, or for ``seconds``, and return what it did; ``python`` runs one that starts none.

    ``simulated``: its GPUs are; then nothing is said of the time in which they computed nothing.
    """
    started = completed(command, python)
    with Folder("trace") as folder:
        return _run(command, started, environment, seconds, folder, simulated=simulated)


def watched(environment: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return the variables with which every Python that is started is watched."""
    own = environment.get("PYTHONPATH")  # an empty entry of it is the working directory
    return {FOLDER: str(folder), "PYTHONPATH": f"{INSIDE}{os.pathsep}{own}" if own else str(INSIDE)}


def _run(
    command: Sequence[str],
    started: Sequence[str],
    unwatched: Mapping[str, str],
    seconds: float | None,
    folder: Path,
    *,
    simulated: bool,
) -> Ran:
    beside = sampler.start(folder, unwatched)
    began, clock = time.time(), time.monotonic()
    answers: dict[str, str] = {}
    try:
        outcome = foreground.run(
            started, {**unwatched, **watched(unwatched, folder)}, seconds, lambda: answers.update(_asked(folder))
        )
    finally:
        sampler.stop(beside)
    if not outcome.is_started:
        return Ran(outcome.status, None)
    stopped = f"still running after {seconds:g} s; ended by gpudiag, " if outcome.is_stopped and seconds else ""
    ended = _ended(outcome.code, stopped)
    processes = notes.read(folder)
    if outcome.code and not outcome.is_stopped:  # the tasks that it ran itself have ended by now
        answers = asked(peers.addresses(processes, but_own=True))
    booked = sampler.read(folder, None if simulated else gather.made_at(processes))
    trace = gather.gathered(
        processes, tuple(command), ended, began, time.monotonic() - clock, booked=booked, answers=answers
    )
    return Ran(outcome.status, own_lines.explained(trace))


def _ended(code: int, before: str) -> str:
    if code >= 0:
        return f"{before}exit status {code}"
    try:
        return f"{before}killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"{before}killed by signal {-code}"


def _asked(folder: Path) -> dict[str, str]:
    return asked(peers.addresses(notes.read(folder), but_own=False))
