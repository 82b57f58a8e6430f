"""Runs a program in the foreground: gpudiag passes on its input, output, signals and exit status."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from gpudiag.text import say

NOT_EXECUTABLE, NOT_FOUND = 126, 127  # as shells say it
GRACE_S = 10.0
"""How long a program may take after SIGTERM, before it is killed."""
_FORWARDED = {
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGCONT,
}
"""Signals that a terminal or a supervisor may send; they are passed on, and the program decides what to do."""
_WAITED_FOR = _FORWARDED | {signal.SIGCHLD}
_FROM_KERNEL = 0x80  # SI_KERNEL: sent by the terminal, to the program as well


@dataclass(frozen=True)
class ProgramEnd:
    """How a program ended, or that it could not be started."""

    code: int
    """The exit status of the program; -n for signal n."""
    is_started: bool = True
    is_stopped: bool = False
    """True if the program was ended because its time was up."""

    @property
    def status(self) -> int:
        """The exit status in a shell's notation: 128 + n for signal n."""
        return 128 - self.code if self.code < 0 else self.code


def run(
    command: Sequence[str],
    environment: Mapping[str, str],
    seconds: float | None = None,
    before_stop: Callable[[], None] = lambda: None,
) -> ProgramEnd:
    """Run ``command`` to its end, or for ``seconds``; print the reason if it cannot be started.

    ``before_stop`` is called while the program still runs, before it is ended.
    """
    with _signals_held() as restore:
        try:
            process = subprocess.Popen(
                command,
                env=environment,
                # System calls alone, which take no lock that a thread could hold across the fork.
                preexec_fn=restore,  # noqa: PLW1509  # see above
            )
        except FileNotFoundError:
            say(f"gpudiag: error: {command[0]}: no such {'file' if command[0].endswith('.py') else 'command'}.")
            return ProgramEnd(NOT_FOUND, is_started=False)
        except (PermissionError, OSError) as error:
            say(f"gpudiag: error: {command[0]}: {error.strerror}.")
            return ProgramEnd(NOT_EXECUTABLE, is_started=False)
        is_stopped = _wait(process, seconds, before_stop)
    return ProgramEnd(process.returncode, is_stopped=is_stopped)


@contextmanager
def _signals_held() -> Iterator[Callable[[], None]]:
    """Block the signals that are waited for; yield a function that restores the original signal state in the program.

    Where SIGCHLD is ignored, as some supervisors and inits of containers leave it, the kernel sends none and forgets
    the exit status.
    """
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED_FOR)
    on_child = signal.signal(signal.SIGCHLD, signal.SIG_DFL)

    def restore() -> None:
        if on_child is signal.SIG_IGN:
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    try:
        yield restore
    finally:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL if on_child is None else on_child)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _wait(process: subprocess.Popen[bytes], seconds: float | None, before_stop: Callable[[], None]) -> bool:
    """Wait for the program, pass signals on to it, and end it after ``seconds``; return whether that was needed.

    The terminal sends its own signals, such as Ctrl-C, to the program too.
    """
    until = None if seconds is None else time.monotonic() + seconds
    endings = iter((signal.SIGTERM, signal.SIGKILL))
    is_stopped = False
    while process.poll() is None:
        if until is None:
            received = signal.sigwaitinfo(_WAITED_FOR)
        else:
            waited = signal.sigtimedwait(_WAITED_FOR, max(0.0, until - time.monotonic()))
            if waited is None:
                if not is_stopped:
                    before_stop()
                process.send_signal(next(endings, signal.SIGKILL))
                until = time.monotonic() + GRACE_S
                is_stopped = True
                continue
            received = waited
        by_terminal = received.si_code == _FROM_KERNEL
        if received.si_signo != signal.SIGCHLD and not by_terminal:
            process.send_signal(received.si_signo)
    return is_stopped
