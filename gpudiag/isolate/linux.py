"""The Linux calls that keep processes from outliving those who started them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from pathlib import Path

_PR_SET_PDEATHSIG = 1  # prctl(2)
_PR_SET_CHILD_SUBREAPER = 36
_PR_GET_CHILD_SUBREAPER = 37


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}, {value})")


def die_with_parent(parent: int) -> None:
    """Have this process killed when its parent dies; leave at once where ``parent`` has died already."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def outlive_parent() -> None:
    """Undo :func:`die_with_parent`, but be woken by the parent's death where this process was stopped."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGCONT)


def is_stopped(pid: int) -> bool:
    """Tell whether a process was stopped, as by SIGSTOP, and so answers nobody."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state in "Tt"


def environment_holds(pid: int, entry: str) -> bool:
    """Tell whether ``NAME=value`` was in a process's environment when its program, or its ancestor's, began."""
    try:
        return entry.encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


def adopt_orphans(adopt: bool = True) -> None:
    """Become the parent of every descendant whose own parent dies, also of one that called ``setsid``; or no more."""
    _prctl(_PR_SET_CHILD_SUBREAPER, int(adopt))


def adopts_orphans() -> bool:
    """Tell whether :func:`adopt_orphans` is in force."""
    answer = ctypes.c_int()
    ctypes.CDLL(None).prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(answer), 0, 0, 0)
    return bool(answer.value)


def children() -> set[int]:
    """Return the process ids of this process's children, zombies included."""
    found = set[int]()
    for task in Path("/proc/self/task").iterdir():
        try:
            found.update(int(pid) for pid in (task / "children").read_text().split())
        except OSError:  # the thread has ended, or the kernel lacks CONFIG_PROC_CHILDREN
            continue
    return found


def kill_group(pid: int, number: int) -> None:
    """Send a signal to the process group that ``pid`` leads, or to ``pid`` alone where it leads none yet."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        try:
            os.killpg(pid, number)
        except ProcessLookupError:
            os.kill(pid, number)
