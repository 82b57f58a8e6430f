"""Finds the function of NVIDIA's libraries and the file that a process waits in, from /proc, without stopping it.

No list of functions is needed: a thread that waits has the addresses to which it returns on its stack, and the symbols
of the library say to which exported function an address belongs. The outermost one is what TensorFlow called. This
reads what the stack holds and unwinds nothing, so an address that an earlier call left behind may be met; those that
no call instruction precedes are passed over.

The kernel may keep a reader waiting for a process that hangs while its memory is mapped: do it in a separate process.
"""

from __future__ import annotations

import bisect
import contextlib
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from gpudiag.hardware import elf

_NVIDIA = (
    *("libcuda", "libcublas", "libcudnn", "libcufft", "libcurand", "libcusolver", "libcusparse", "libcupti"),
    *("libnccl", "libnvidia-", "libnvrtc", "libnvJitLink", "libgpudiag_"),
)
"""Beginnings of the file names of NVIDIA's libraries.

A library with the CUDA runtime linked into it counts as a part of TensorFlow."""
_SYSTEM = re.compile(r"(lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+)|ld-linux[^/]*)[.-]|\[vdso\]")
_VERSION = re.compile(r"(?:_v\d{1,2})?(?:_ptsz|_ptds)?$")
"""The suffix of a function's name as the library exports it, not as it is documented: ``cuMemAlloc_v2``."""
_STACK_BYTES = 256 << 10
"""Bytes read of a stack, from its innermost frame: deeper frames were there before a library was called."""
_MOST_THREADS = 200
_WITH_FILE = {0: "read", 1: "write", 16: "ioctl", 17: "pread", 72: "fcntl", 73: "flock", 232: "epoll_wait"}
"""System calls of x86-64 whose first argument is a file."""
_NAMELESS = ("pipe:", "socket:", "anon_inode:", "/memfd:")


@dataclass(frozen=True)
class _Mapped:
    """A part of a file that a process may execute."""

    start: int
    end: int
    offset: int
    path: str

    @cached_property
    def kind(self) -> str:
        name = self.path.rpartition("/")[2]
        return "nvidia" if name.startswith(_NVIDIA) else "system" if _SYSTEM.match(name) else "other"


class WaitPlace(msgspec.Struct, frozen=True):
    """The place where a thread waits; each text is "" if unknown."""

    call: str = ""
    """The function of NVIDIA's libraries that the program called."""
    file: str = ""
    """The system call and its file, such as ``ioctl on /dev/nvidia0``."""
    thread: str = ""
    """The folder of the thread in /proc."""
    woken: int = 0
    """How often the thread was woken before this wait."""


def look(argument: dict[str, Any]) -> bytes:
    """Return where the process ``argument["pid"]`` or one of its descendants waits: a :class:`WaitPlace` as JSON."""
    found = WaitPlace()
    for pid in _below(argument["pid"]):
        with contextlib.suppress(OSError):
            for where in _threads(pid):
                if where.call:
                    return msgspec.json.encode(where)
                found = found if found.file else where
    return msgspec.json.encode(found)


def woken(thread: str) -> int | None:
    """Return how often a thread (a folder of /proc) was woken; None if it runs, has ended, or the kernel does not
    count."""
    try:
        status = Path(thread, "status").read_text(errors="replace")
    except OSError:
        return None
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    times = [fields.get(f"{kind}_ctxt_switches") for kind in ("voluntary", "nonvoluntary")]
    if fields.get("State", "").split()[:1] not in (["S"], ["D"]) or None in times:
        return None
    return sum(int(count or 0) for count in times)


def _below(pid: int) -> Iterator[int]:
    """Yield a process and all its descendants, the last ones first: a process may wait for its child."""
    for child in children(pid):
        yield from _below(child)
    yield pid


def children(pid: int) -> list[int]:
    """Return the children of a process; none if the kernel does not tell."""
    pids = list[int]()
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):  # the thread has ended
                pids += map(int, (task / "children").read_text().split())
    return pids


def _threads(pid: int) -> Iterator[WaitPlace]:
    """Yield where each thread waits, the first one first."""
    mapped = None
    tasks = (int(task.name) for task in Path(f"/proc/{pid}/task").iterdir())
    threads = sorted(tasks, key=lambda thread: (thread != pid, thread))
    for thread in threads[:_MOST_THREADS]:
        with contextlib.suppress(OSError):
            folder = f"/proc/{pid}/task/{thread}"
            count = woken(folder)
            words = Path(folder, "syscall").read_text().split()
            if len(words) < 3 or count is None:  # it runs
                continue
            mapped = _maps(pid) if mapped is None else mapped
            call = _called(pid, int(words[-2], 16), mapped)
            yield WaitPlace(call, _file(pid, words) if thread == pid or call else "", folder, count)


def _file(pid: int, words: list[str]) -> str:
    name = _WITH_FILE.get(int(words[0]))
    if name is None:
        return ""
    file = str(Path(f"/proc/{pid}/fd/{int(words[1], 16)}").readlink())
    return "" if file.startswith(_NAMELESS) else f"{name} on {file}"


def _maps(pid: int) -> list[tuple[_Mapped, str]]:
    found = []
    for line in Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines():
        span, permissions, offset, _, _, *path = line.split(None, 5)
        start, _, end = span.partition("-")
        found.append((_Mapped(int(start, 16), int(end, 16), int(offset, 16), path[0] if path else ""), permissions))
    return found


def _called(pid: int, stack: int, mapped: list[tuple[_Mapped, str]]) -> str:
    """Return the outermost exported function of NVIDIA's libraries on a thread's stack; "" if there is none."""
    starts = [mapping.start for mapping, _ in mapped]

    def of(address: int) -> tuple[_Mapped, str] | None:
        at = bisect.bisect_right(starts, address) - 1
        return mapped[at] if at >= 0 and address < mapped[at][0].end else None

    own = of(stack)
    if own is None:
        return ""
    outermost = ""
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        memory.seek(stack)
        held = memory.read(min(own[0].end - stack, _STACK_BYTES))
        for (word,) in struct.iter_unpack("<Q", held[: len(held) // 8 * 8]):
            place = of(word)
            if place is None or "x" not in place[1] or place[0].kind == "system":
                continue
            memory.seek(word - 8)
            if not _after_a_call(memory.read(8)):
                continue
            if place[0].kind == "other":  # who called the library, or nobody did
                break
            outermost = _VERSION.sub("", _function(place[0], word)) or outermost
    return outermost


def _after_a_call(code: bytes) -> bool:
    """Return whether the eight bytes before an address can end in a call instruction of x86-64."""
    if code[3] == 0xE8:  # call of an address
        return True
    # call of what a register, or memory at a register, holds: FF /2, of two to seven bytes
    return any(code[8 - size] == 0xFF and code[9 - size] >> 3 & 7 == 2 for size in range(2, 8))


def _function(place: _Mapped, address: int) -> str:
    """Return the exported function of a library whose code contains this address; "" for one that is not exported."""
    at = address - place.start + place.offset
    return next((name for begin, end, name in elf.functions(Path(place.path)) if begin < at <= end), "")
