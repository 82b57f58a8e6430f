"""Whether another user can have written a file: such a file never decides what is run, loaded or believed.

A path is trusted if each folder, link and file on the way to it belongs to this user or to root, and nobody else can
write to it. In a folder such as ``/tmp`` everybody can create files, but not replace those of others (it is sticky), so
it may be on the way. The owner of the interpreter that runs, such as the administrator of a cluster's software, decides
what this process does in any case, and is trusted.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

from gpudiag.text import printable

_MOST_LINKS = 40


def distrust(path: Path, also: frozenset[int] = frozenset()) -> str:
    """Return why another user can have written ``path``, or can do so; "" if he cannot.

    For a path that does not exist, return why another user can create it. The users ``also`` are trusted as well. The
    result is always "" on Windows, which has no such owners and modes.
    """
    if not hasattr(os, "geteuid"):
        return ""
    trusted = {os.geteuid(), 0, _owner_of_interpreter()} | also
    above = Path("/")
    try:
        absolute = path.absolute()
        for step, is_last in steps(absolute):
            if not os.path.lexists(step):  # who can write to the folder above it can create it, also if it is sticky
                return _reason(above, trusted, is_last=True).replace("{}", f"its folder {above}")
            if reason := _reason(step, trusted, is_last=is_last):
                kind = "the link" if step.is_symlink() else "its folder"
                return reason.replace("{}", "it" if is_last or step == absolute else f"{kind} {step}")
            above = step
    except (OSError, RuntimeError) as error:
        return f"its owner cannot be read ({error})"
    return ""


@functools.cache
def _owner_of_interpreter() -> int:
    """Return the owner of the file that this process executes; root if that cannot be read."""
    try:
        return Path(sys.executable).stat().st_uid if sys.executable else 0
    except OSError:
        return 0


def read(path: Path, most: int) -> bytes:
    """Return the first ``most`` bytes of a plain file; raises ``OSError`` with the reason if it is not trusted."""
    if reason := distrust(path):
        raise PermissionError(errno.EPERM, reason)
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
    with open(os.open(path, flags), "rb") as stream:  # noqa: PTH123  # a descriptor
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is not a plain file")
        return stream.read(most)


def user_name(number: int) -> str:
    """Return the name of a user, or ``uid 1000`` if this system has no name for the number."""
    with contextlib.suppress(ImportError, KeyError):
        import pwd

        return printable(pwd.getpwuid(number).pw_name)
    return f"uid {number}"


def steps(path: Path) -> Iterator[tuple[Path, bool]]:
    """Yield each step of an absolute path, links included, and whether it is the last one and not a link."""
    pending = list(reversed(path.parts[1:]))
    at = Path(path.anchor)
    yield at, not pending
    links = 0
    while pending:
        name = pending.pop()
        if name == "..":
            at = at.parent
            continue
        step = at / name
        if not step.is_symlink():
            at = step
            yield step, not pending
            continue
        yield step, False
        links += 1
        if links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        target = step.readlink()
        pending += reversed(target.parts[1:] if target.is_absolute() else target.parts)
        at = Path(target.anchor) if target.is_absolute() else at


def _reason(path: Path, trusted: set[int], *, is_last: bool) -> str:
    """Return why another user can have written one step of a path, with {} in the place of its name."""
    status = path.lstat()
    # Who owns / decides about everything below; in a namespace of users that is nobody whom it knows.
    if status.st_uid not in (trusted if is_last else trusted | {Path("/").lstat().st_uid}):
        return f"{{}} belongs to {user_name(status.st_uid)}"
    is_sticky = not is_last and status.st_mode & stat.S_ISVTX
    if stat.S_ISLNK(status.st_mode) or is_sticky:
        return ""
    if status.st_mode & stat.S_IWOTH:
        return "everybody can write to {}"
    if status.st_mode & stat.S_IWGRP:
        if _has_access_list(path):
            return "an access control list lets others write to {}"
        if not _is_private(status.st_gid, status.st_uid):
            return f"group {_group_name(status.st_gid)} can write to {{}}"
    return ""


def _has_access_list(path: Path) -> bool:
    """Return whether more users and groups have rights than the mode shows."""
    try:
        return bool(os.getxattr(path, "system.posix_acl_access"))
    except (OSError, AttributeError):
        return False


@functools.cache
def _is_private(group: int, owner: int) -> bool:
    """Return whether a group is root's, or has only the file's owner as a member and has the owner's name."""
    if group == 0:
        return True
    name = user_name(owner).removeprefix("uid ")
    members: list[str] = []
    with contextlib.suppress(ImportError, KeyError):
        import grp

        members = grp.getgrgid(group).gr_mem
    return _group_name(group) == name and set(members) <= {name}


def _group_name(number: int) -> str:
    with contextlib.suppress(ImportError, KeyError):
        import grp

        return printable(grp.getgrgid(number).gr_name)
    return f"{number}"
