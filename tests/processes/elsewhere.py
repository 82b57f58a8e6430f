"""``gpudiag`` as under Windows: without the modules and names that Python has on POSIX systems alone.

It is run as a program, with the arguments of the command. Children that it starts are as they are on this system.
"""

from __future__ import annotations

import asyncio  # noqa: F401  # what comes with Python, and other packages, chose this system when they were imported
import importlib.metadata
import os
import platform
import select
import signal
import socket
import sys
import tempfile  # noqa: F401
from importlib.machinery import ModuleSpec
from typing import Any

import click  # noqa: F401
import elftools.elf.elffile  # noqa: F401
import filelock  # noqa: F401
import jinja2  # noqa: F401
import msgspec  # noqa: F401
import packaging.version  # noqa: F401
import psutil
import rich.progress  # noqa: F401

MODULES = ("curses", "fcntl", "grp", "posix", "pty", "pwd", "readline", "resource", "syslog", "termios", "tty")
NAMES: dict[Any, str] = {
    os: "chown eventfd fchown fork forkpty getegid geteuid getgid getgroups getloadavg getpgid getpgrp getuid "
    "killpg memfd_create mkfifo nice pidfd_open pipe2 pread pwrite register_at_fork sched_getaffinity setpgid setsid "
    "setuid statvfs sysconf uname wait3 wait4 waitid",
    select: "epoll poll",
    signal: "SIGALRM SIGCHLD SIGCONT SIGHUP SIGKILL SIGPIPE SIGQUIT SIGSTOP SIGTSTP SIGUSR1 SIGUSR2 pthread_sigmask "
    "setitimer siginterrupt",
    socket: "AF_UNIX recv_fds send_fds",
}


class NotThere:
    """Finds no module of :data:`MODULES`."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name in MODULES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


def leave_posix() -> None:
    """Take away, in this process, what is not there under Windows."""
    platform.platform()
    importlib.metadata.version("psutil")
    psutil.virtual_memory()
    sys.meta_path.insert(0, NotThere)
    for name in MODULES:
        sys.modules.pop(name, None)
    for module, names in NAMES.items():
        for name in names.split():
            if hasattr(module, name):
                delattr(module, name)
    sys.platform = "win32"


if __name__ == "__main__":
    leave_posix()
    from gpudiag.__main__ import main

    main()
