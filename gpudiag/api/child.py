"""Runs the command line in a process of its own, for the Python interface."""

from __future__ import annotations

import signal
import sys
from typing import NoReturn

from gpudiag import cli


def main() -> NoReturn:
    """Run the command of the arguments; the first one is the process that started this, and which it must not outlive.

    A program may call from a thread that blocks signals, or ignore those of its children: this process inherits both.
    """
    caller = int(sys.argv.pop(1))
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if sys.platform == "linux":
        from gpudiag.isolate import linux

        linux.die_with_parent(caller, signal.SIGTERM)
    cli.main()
