"""Report files: checked before the run, and replaced as a whole after it."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from gpudiag.errors import OutputError, UsageError
from gpudiag.folders import file_beside, put_in_place

_pipes: dict[Path, int] = {}
"""The reserved pipes, held open: if one is closed before the report is written, its reader sees the end."""


def reserve(paths: Iterable[Path]) -> None:
    """Make sure that all ``paths`` can be written; raises :class:`UsageError` with the path and the reason otherwise.

    It creates a file beside each and removes it, because permission bits show neither a read-only file system nor
    access control lists.
    """
    for path in paths:
        try:
            if path.is_dir():
                raise UsageError(f"{path}: cannot be written: it is a folder.")
            if path.exists() and not os.access(path, os.W_OK):
                raise UsageError(f"{path}: cannot be written: it is read-only.")
            if path.is_fifo():
                _pipes[path] = os.open(path, os.O_WRONLY | os.O_NONBLOCK)  # ENXIO if nothing reads from it
                os.set_blocking(_pipes[path], True)
            elif not _is_special(path):
                with file_beside(_target(path)):
                    pass
        except OSError as error:
            raise UsageError(_fault(path, error)) from None


def is_termination_message(path: Path) -> bool:
    """Return whether a file is where a container leaves its last words: ``/dev/termination-log``."""
    return path.name == "termination-log"


def write(path: Path, content: str | bytes) -> None:
    """Write a text or bytes to ``path``; a regular file is replaced as a whole or not at all.

    A file that is replaced keeps its mode and owner. If ``path`` is a link, its target is replaced. A pipe, a device or
    a file that is mounted is written directly. Raises :class:`OutputError` if writing fails.
    """
    content = content.encode() if isinstance(content, str) else content
    try:
        if _is_special(path):
            with open(_pipes.pop(path, path), "wb") as stream:  # noqa: PTH123  (or a descriptor)
                stream.write(content)
        else:
            target = _target(path)
            with file_beside(target) as temporary:
                _take_over(target, temporary)
                temporary.write_bytes(content)
                _replace(target, temporary, content)
    except OSError as error:
        raise OutputError(_fault(path, error)) from None


def _replace(target: Path, temporary: Path, content: bytes) -> None:
    """Put a file in the place of another one; a file on which another one is mounted is written instead."""
    try:
        put_in_place(temporary, target)
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        target.write_bytes(content)


def _is_special(path: Path) -> bool:
    """Return True for files that cannot be replaced: pipes, devices, and files on which another one is mounted, such as
    the termination log of a container."""
    return path.exists() and (not path.is_file() or os.path.ismount(path))


def _take_over(target: Path, temporary: Path) -> None:
    """Give ``temporary`` the mode of the file that it will replace, and if possible its owner and group."""
    with contextlib.suppress(FileNotFoundError):
        status = target.stat()
        if _is_planted(target):
            return
        for owner in (status.st_uid, -1):  # a member of a group may give a file to that group
            with contextlib.suppress(OSError, AttributeError):
                os.chown(temporary, owner, status.st_gid)
                break
        temporary.chmod(stat.S_IMODE(status.st_mode) & 0o777)


def _target(path: Path) -> Path:
    """Return the file that ``path`` leads to; raises ``OSError`` for a link that another user put there."""
    if path.is_symlink() and _is_planted(path):
        raise OSError(errno.EACCES, "it is another user's link, in a folder that everybody can write to")
    return Path(os.path.realpath(path))


def _is_planted(path: Path) -> bool:
    """Return whether ``path`` belongs to another user, in a folder like /tmp: Linux does not open such a file or link.

    (See ``fs.protected_symlinks`` and ``fs.protected_regular``.) Replacing a file does not open it, so gpudiag checks
    this itself.
    """
    folder = path.parent.stat()
    shared = folder.st_mode & stat.S_ISVTX and folder.st_mode & stat.S_IWOTH
    return bool(shared) and path.lstat().st_uid not in (os.geteuid(), folder.st_uid)


def _fault(path: Path, error: OSError) -> str:
    reason = error.strerror or str(error)
    if error.errno == errno.ENXIO:
        reason = "it is a pipe that no program reads from"
    elif isinstance(error, FileNotFoundError):
        folder = Path(error.filename or path).parent
        reason = f"cannot create files in {folder}" if folder.is_dir() else f"there is no folder {folder}"
    return f"{path}: cannot be written: {reason}."
