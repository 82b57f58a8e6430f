"""Linux calls that keep processes from outliving those that started them."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

_PR_SET_PDEATHSIG = 1  # prctl(2)
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_PTRACER = 0x59616D61
_SOCKET_PATH_BYTES = 108  # with its final NUL, unix(7)
looker = 0
"""Pid of the supervisor, in a fork server and its forks."""


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}, {value})")


def die_with_parent(parent: int, number: int = signal.SIGKILL) -> None:
    """Make the kernel send this process a signal when its parent dies; exit at once if ``parent`` has died already."""
    _prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os._exit(1)


def let_look() -> None:
    """Let :data:`looker` and its descendants read in /proc what this process waits for; forks do not inherit this.

    With Yama, as on Ubuntu, only ancestors may read it otherwise.
    """
    with contextlib.suppress(OSError):  # a kernel without Yama asks for nothing
        _prctl(_PR_SET_PTRACER, looker)


def environment_holds(pid: int, entry: str) -> bool:
    """Return whether a process's environment had ``NAME=value`` when its program, or its ancestor's, began."""
    try:
        return entry.encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent dies, even if the descendant called ``setsid``."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def children() -> set[int]:
    """Return the process ids of this process's children, zombies included; none if there is no ``/proc``."""
    pids = set[int]()
    with contextlib.suppress(OSError):
        for task in Path("/proc/self/task").iterdir():
            # The thread has ended, or the kernel lacks CONFIG_PROC_CHILDREN.
            with contextlib.suppress(OSError):
                pids.update(int(pid) for pid in (task / "children").read_text().split())
    return pids


def has_ended(pid: int) -> bool:
    """Return whether a child of this process has ended; if so, reap it."""
    try:
        return os.waitpid(pid, os.WNOHANG) != (0, 0)
    except ChildProcessError:
        return True


def was_killed(pid: int) -> bool:
    """Send SIGKILL to a process; return False if this user may not, as with a program that changed its user
    (``sudo``)."""
    try:
        os.kill(pid, signal.SIGKILL)
    except PermissionError:
        return False
    except ProcessLookupError:
        pass
    return True


@contextlib.contextmanager
def short_path(path: Path) -> Iterator[str]:
    """Yield a path to the same file that is short enough for a socket address: TMPDIR may be long."""
    if len(os.fsencode(path)) < _SOCKET_PATH_BYTES:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def anonymous_file() -> int:
    """Return the descriptor of an empty, nameless file in memory, which needs no folder that could be full."""
    try:
        return os.memfd_create("gpudiag")
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.EPERM):  # a kernel before 3.17, or a filter of system calls
            raise
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def kill_group(pid: int, number: int) -> None:
    """Send a signal to the process group of ``pid``, or only to ``pid`` if it does not lead a group yet."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        try:
            os.killpg(pid, number)
        except ProcessLookupError:
            os.kill(pid, number)
