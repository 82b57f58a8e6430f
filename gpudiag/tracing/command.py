"""Runs a program with the watcher inside: unchanged, in the foreground, its signals, its input and output its own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpudiag.errors import UsageError
from gpudiag.model.program import ProgramTrace
from gpudiag.simulator.command import FORWARDED, NOT_EXECUTABLE, NOT_FOUND
from gpudiag.text import say
from gpudiag.tracing import gather, notes, peers, sampler
from gpudiag.tracing.inside.gpudiag_watch.notes import FOLDER

INSIDE = Path(__file__).parent / "inside"
NOTEBOOK = INSIDE / "gpudiag_notebook.py"
GRACE_S = 10.0
"""How long a program that ``--for`` ends may take, before it is killed."""
_FROM_KERNEL = 0x80  # SI_KERNEL: sent by the terminal, to the program as well


@dataclass(frozen=True)
class Ran:
    """A program that has run."""

    status: int
    """Its exit status, as shells say it; 128 + n for signal n."""
    trace: ProgramTrace | None
    """None: it could not be started."""


def completed(command: Sequence[str]) -> tuple[str, ...]:
    """Return the command as it is started: a module, a Python file and a notebook are given a Python.

    Raises ``UsageError`` for a notebook that is not there.
    """
    first = command[0]
    if first == "-m":
        return (sys.executable, *command)
    if first.endswith(".ipynb"):
        if not Path(first).is_file():
            raise UsageError(f"{first}: there is no such notebook")
        return (sys.executable, str(NOTEBOOK), *command)
    if first.endswith(".py") and Path(first).is_file() and shutil.which(first) is None:
        return (sys.executable, *command)
    return tuple(command)


def run(
    command: Sequence[str], environment: Mapping[str, str], seconds: float | None, *, simulated: bool = False
) -> Ran:
    """Run ``command`` to its end, or for ``seconds``, and return what it did.

    ``simulated``: its GPUs are; then nothing is said of the time in which they computed nothing.
    """
    started = completed(command)
    folder = Path(tempfile.mkdtemp(prefix="gpudiag-trace-"))
    try:
        return _run(command, started, environment, seconds, folder, simulated=simulated)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def watched(environment: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return the variables with which every Python that is started is watched."""
    path = [str(INSIDE), *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    return {FOLDER: str(folder), "PYTHONPATH": os.pathsep.join(path)}


def _run(
    command: Sequence[str],
    started: Sequence[str],
    unwatched: Mapping[str, str],
    seconds: float | None,
    folder: Path,
    *,
    simulated: bool,
) -> Ran:
    waited_for = FORWARDED | {signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, waited_for)
    beside = sampler.start(folder, unwatched)
    began, clock = time.time(), time.monotonic()
    try:
        try:
            process = subprocess.Popen(
                started,
                env={**unwatched, **watched(unwatched, folder)},
                # One system call, which takes no lock that a thread could hold across the fork.
                preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, before),  # noqa: PLW1509  # see above
            )
        except FileNotFoundError:
            say(f"gpudiag: {started[0]}: no such {'file' if started[0].endswith('.py') else 'command'}")
            return Ran(NOT_FOUND, None)
        except (PermissionError, OSError) as error:
            say(f"gpudiag: {started[0]}: {error.strerror}")
            return Ran(NOT_EXECUTABLE, None)
        answers: dict[str, str] = {}
        stopped = _wait(process, waited_for, seconds, lambda: answers.update(_asked(folder)))
    finally:
        sampler.stop(beside)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    code = process.returncode
    ended = _ended(code, f"still running after {seconds:g} s; ended by gpudiag, " if stopped and seconds else "")
    processes = notes.read(folder)
    if code and not stopped:  # the tasks that it ran itself have ended by now
        answers = peers.asked(peers.addresses(processes, but_own=True))
    booked = sampler.read(folder, None if simulated else gather.made_at(processes))
    trace = gather.gathered(
        processes, tuple(command), ended, began, time.monotonic() - clock, booked=booked, answers=answers
    )
    return Ran(128 - code if code < 0 else code, trace)


def _ended(code: int, before: str) -> str:
    if code >= 0:
        return f"{before}exit status {code}"
    try:
        return f"{before}killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"{before}killed by signal {-code}"


def _asked(folder: Path) -> dict[str, str]:
    return peers.asked(peers.addresses(notes.read(folder), but_own=False))


def _wait(
    process: subprocess.Popen[bytes],
    waited_for: set[signal.Signals],
    seconds: float | None,
    look: Callable[[], None],
) -> bool:
    """Wait for the program, pass signals on to it, and end it after ``seconds``; return whether that was needed.

    ``look`` is called while it still runs, before it is ended.

    What the terminal sends, such as Ctrl-C, it sends to the program too.
    """
    until = None if seconds is None else time.monotonic() + seconds
    endings = iter((signal.SIGTERM, signal.SIGKILL))
    stopped = False
    while process.poll() is None:
        if until is None:
            received = signal.sigwaitinfo(waited_for)
        else:
            waited = signal.sigtimedwait(waited_for, max(0.0, until - time.monotonic()))
            if waited is None:
                if not stopped:
                    look()
                process.send_signal(next(endings, signal.SIGKILL))
                until = time.monotonic() + GRACE_S
                stopped = True
                continue
            received = waited
        by_terminal = received.si_code == _FROM_KERNEL
        if received.si_signo != signal.SIGCHLD and not by_terminal:
            process.send_signal(received.si_signo)
    return stopped
