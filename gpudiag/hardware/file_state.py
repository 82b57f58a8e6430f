"""A file as it is, before anything opens it: the one description of why it cannot serve as a library."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import struct
from pathlib import Path
from typing import IO

from gpudiag import trust
from gpudiag.hardware import elf
from gpudiag.model.facts import FileFault, FileState
from gpudiag.text import printable

_MOST_LINKS = 40
_START = 512
_CONTENTS = (
    ((b"version https://git-lfs.",), "is a pointer of Git LFS, not the file itself"),
    ((b"<!doctype", b"<html", b"<?xml"), "is a page of HTML or XML, not a library"),
    ((b"/* gnu ld script", b"input(", b"input (", b"group(", b"group ("), "is a text for the linker, not a library"),
    ((b"!<arch>\n",), "is a static library"),
    ((b"\x1f\x8b", b"pk\x03\x04", b"\xfd7zxz", b"bzh", b"\x28\xb5\x2f\xfd"), "is a compressed archive"),
    ((bytes(64),), "begins with zeros"),
)
"""What is found in the place of a library, by its first bytes in lower case, without white space before them."""
_PROCESSORS = {"EM_X86_64": "x86-64", "EM_AARCH64": "AArch64", "EM_386": "x86", "EM_PPC64": "POWER", "EM_ARM": "ARM"}
_PT_LOAD = 1


def look(file: Path, machine: tuple[int, str] | None = None, recorded: int | None = None) -> FileState | None:
    """Return the fault of ``file`` as a library, or None if none is seen.

    ``machine`` is the class and processor of the program that is to load it. ``recorded`` is the size in
    bytes that its package's record has: no fault by itself, as ``strip`` makes a library smaller. Only the first bytes
    and the headers are read; a pipe or device is not opened.
    """

    def fault(kind: FileFault, words: str, place: Path | str = "") -> FileState:
        return FileState(printable(str(file)), kind, printable(words), printable(str(place)))

    try:
        status = file.stat()
        if stat.S_ISDIR(status.st_mode):
            return fault(FileFault.FOLDER, "is a folder")
        if not stat.S_ISREG(status.st_mode):
            return fault(FileFault.KIND, f"is no plain file ({stat.filemode(status.st_mode)})")
        with file.open("rb") as stream:
            start = stream.read(_START)
            needed = _extent(start, stream, status.st_size)
        is_executable = not os.statvfs(file).f_flag & getattr(os, "ST_NOEXEC", 0)
    except OSError as error:
        return fault(*_refused(file, error))
    if status.st_size == 0:
        return fault(FileFault.EMPTY, "is empty")
    if not start.startswith(b"\x7fELF"):
        begins = start.lstrip().lower()
        what = next((words for prefixes, words in _CONTENTS if begins.startswith(prefixes)), "is not a library")
        return fault(FileFault.CONTENT, what)
    if needed > status.st_size:
        words = f"is cut short: it has {status.st_size} bytes, and its headers name {needed}"
        return fault(FileFault.CUT, words if recorded is None else f"{words} (its package's record: {recorded})")
    own = elf.read(file)
    if own is None:
        return fault(FileFault.CONTENT, f"has damaged headers{_of_record(status.st_size, recorded)}")
    if machine is not None and own.machine != machine:
        words = f"is for another kind of processor, {_processor(own.machine)} in place of {_processor(machine)}"
        return fault(FileFault.PROCESSOR, words)
    if not is_executable:
        mount = _mount(file.resolve())
        return fault(FileFault.NOEXEC, f"is on {mount}, which is mounted noexec: no library loads there", mount)
    return None


def _of_record(size: int, recorded: int | None) -> str:
    return "" if recorded in (None, size) else f": it has {size} bytes, and its package's record says {recorded}"


def _processor(machine: tuple[int, str]) -> str:
    bits, name = machine
    return f"{_PROCESSORS.get(name, str(name).removeprefix('EM_'))} ({bits} bit)"


def _refused(file: Path, error: OSError) -> tuple[FileFault, str, str]:
    """Return why ``file`` cannot be opened, by the error of this user's own attempt."""
    if error.errno == errno.ENOENT:
        return FileFault.LINK, f"is a link to {_end_of_links(file)}, which is not there", str(_end_of_links(file))
    if error.errno == errno.ELOOP:
        return FileFault.LINK, "is a link that leads to itself", ""
    if error.errno in (errno.EACCES, errno.EPERM) and (step := _closed_step(file)) is not None:
        status = step.stat()
        owner = trust.user_name(status.st_uid)
        own = trust.user_name(os.geteuid()) if hasattr(os, "geteuid") else "this user"
        what = "may not be read" if stat.S_ISREG(status.st_mode) else f"is behind {step}, which may not be entered"
        return FileFault.SHUT, f"{what} by {own} ({stat.filemode(status.st_mode)}, owned by {owner})", str(step)
    return FileFault.UNREADABLE, f"cannot be read: {error.strerror}", ""


def _end_of_links(file: Path) -> Path:
    """Return the last path of a chain of links, which does not exist."""
    for _ in range(_MOST_LINKS):
        if not file.is_symlink():
            break
        target = file.readlink()
        file = target if target.is_absolute() or not (file.parent / target).is_symlink() else file.parent / target
        if not file.is_absolute():  # shown as it is written
            break
    return file


def _closed_step(file: Path) -> Path | None:
    """Return the folder on the way to ``file``, links included, that this user may not enter, or the file itself."""
    with contextlib.suppress(OSError):
        for step, _ in trust.steps(file.absolute()):  # one at a time: a closed folder does not show what is in it
            if not step.is_symlink() and not os.access(step, os.X_OK if step.is_dir() else os.R_OK):
                return step
    return None


def _mount(file: Path) -> Path:
    return next((folder for folder in file.parents if os.path.ismount(folder)), Path("/"))


def _extent(start: bytes, stream: IO[bytes], length: int) -> int:
    """Return how many bytes the loader maps of a 64-bit ELF file, from its program headers; 0 for any other file."""
    if len(start) < 64 or not start.startswith(b"\x7fELF\2\1"):
        return 0
    offset: int = struct.unpack_from("<Q", start, 32)[0]
    size: int
    count: int
    size, count = struct.unpack_from("<HH", start, 54)
    if offset + size * count > length or size < 56:
        return offset + size * count
    stream.seek(offset)
    headers = stream.read(size * count)
    ends = [0]
    for number in range(count):
        kind, _, at, _, _, mapped = struct.unpack_from("<IIQQQQ", headers, size * number)
        ends.append(at + mapped if kind == _PT_LOAD else 0)
    return max(ends)
