"""Folders and files that gpudiag makes. This is the only module of the package that removes anything.

Each folder that gpudiag makes has a mark, the file :data:`MARK`, which says where the folder was made and on which
start of which system. :func:`remove` removes such a folder, or something in one, and nothing else: not if the mark is
missing, cannot be read, belongs to another user or names another place (the folder is a copy), and not if a file system
is mounted in the folder.

A file that takes the place of another is made beside it, and is the only file outside of these folders that is removed:
:func:`file_beside`.

While a folder is made or removed it has another name, :data:`HIDDEN` and its identity, so that under its own name it is
never half there. A folder that belongs to a process is locked by it; see :func:`remove_leftovers`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType

from gpudiag.text import printable

if sys.platform != "win32":
    import fcntl

MARK = ".made-by-gpudiag"
HIDDEN = ".gpudiag-"
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_LARGEST_MARK = 16 << 10


@dataclass(frozen=True)
class Mark:
    """The mark in each folder that gpudiag makes; it needs only the standard library, for sessions of pytest."""

    identity: str
    path: str
    """The path at which the folder was made, without links; a copy of the folder is at another path."""
    host: str
    boot: str
    """The identifier of this start of the system; "" if the system has none."""
    lasting: bool
    """True if the folder stays until it is removed or the system restarts; False if it lasts as long as the process
    that made it."""


@contextlib.contextmanager
def new(folder: Path, mode: int = 0o700) -> Iterator[Path]:
    """Make a folder that outlives the process; the ``with`` block fills it under another name. Raises ``OSError``."""
    mark = _new_mark(folder, lasting=True)
    unfinished = folder.with_name(f"{HIDDEN}{mark.identity}")
    unfinished.mkdir(mode=0o700)
    lock = _write_mark(unfinished, mark)
    try:
        yield unfinished
        unfinished.chmod(mode)
        unfinished.rename(folder)
    except BaseException:
        remove(unfinished)
        raise
    finally:
        _unlock(lock)


class Folder:
    """A temporary folder that exists as long as its process; if that is killed, the next process removes it.

    It is ``gpudiag-<kind>-...`` in the first of ``places`` in which it can be made: by default where ``tempfile`` puts
    temporary files. ``must_lock``: and in which files can be locked, which some network file systems do not allow; a
    folder without a lock is never removed by another process. Raises the ``OSError`` of the first place if there is
    none.
    """

    def __init__(self, kind: str, places: Sequence[Path] = (), *, must_lock: bool = False) -> None:
        failed: OSError | None = None
        for place in places or (Path(tempfile.gettempdir()),):
            remove_leftovers(place)
            try:
                self._make(place / f"gpudiag-{kind}-{secrets.token_hex(4)}", must_lock=must_lock)
                return
            except OSError as error:
                failed = failed or error
        assert failed is not None
        raise failed

    def _make(self, folder: Path, *, must_lock: bool) -> None:
        self.path = folder
        self._process = os.getpid()
        folder.mkdir(mode=0o700)
        try:
            self._lock = _write_mark(folder, _new_mark(folder, lasting=False), must_lock=must_lock)
        except OSError:
            folder.rmdir()
            raise

    def __enter__(self) -> Path:
        return self.path

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove the folder. In a fork of the process that made it, nothing is done."""
        if os.getpid() == self._process:
            remove(self.path)
            self.forget()

    def forget(self) -> None:
        """Close the lock in a fork that must not keep the folder; the process that made it still holds the lock."""
        _unlock(self._lock)
        self._lock = None


def is_in_use(folder: Path) -> bool:
    """Return whether a living process of this user holds the :class:`Folder`."""
    return mark_of(folder) is not None and _is_locked(folder)


@contextlib.contextmanager
def file_beside(target: Path, mode: int = 0o666) -> Iterator[Path]:
    """Make an empty file in the folder of ``target``, with this mode and the umask; the block's end removes it."""
    temporary = target.with_name(f".gpudiag-{secrets.token_hex(8)}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), mode)
    made = os.fstat(descriptor)
    os.close(descriptor)
    try:
        yield temporary
    finally:
        with contextlib.suppress(OSError):
            if os.path.samestat(made, temporary.lstat()):
                temporary.unlink()


def put_in_place(file: Path, target: Path) -> None:
    """Atomically replace ``target`` by the :func:`file_beside` it. Raises ``OSError``."""
    file.replace(target)


def mark_of(folder: Path) -> Mark | None:
    """Return the mark of a folder that gpudiag made for this user at this place.

    None for every other folder, and if the mark cannot be read.
    """
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
    try:
        if not _is_own(folder.lstat(), stat.S_IFDIR):
            return None
        with open(os.open(folder / MARK, flags), "rb") as stream:  # noqa: PTH123  # a descriptor
            if not _is_own(os.fstat(stream.fileno()), stat.S_IFREG):
                return None
            mark = _decoded(stream.read(_LARGEST_MARK))
        made, here = Path(mark.path), printable(_place_of(folder))
        is_here = here in (mark.path, str(made.with_name(f"{HIDDEN}{mark.identity}")))
    except (OSError, ValueError, TypeError, LookupError, RecursionError):
        return None
    return mark if is_here else None


def remove(path: Path) -> bool:
    """Remove a folder that gpudiag made for this user, or something in one; return whether it is gone."""
    path = Path(_place_of(path))
    made = next((folder for folder in (path, *path.parents) if mark_of(folder) is not None), None)
    if made is None or _is_mounted_in(path):
        return not os.path.lexists(path)
    with contextlib.suppress(OSError):
        if path == made:
            _remove_marked(path)
        else:
            _remove_all(path)
    return not os.path.lexists(path)


def write(path: Path, text: str, mode: int = 0o666) -> None:
    """Write a file as a whole or not at all, with this mode and the umask. Raises ``OSError``."""
    with file_beside(path, mode) as file:
        file.write_text(text, encoding="utf-8")
        put_in_place(file, path)


def remove_empty(path: Path) -> bool:
    """Remove an empty folder inside a folder that gpudiag made for this user; return whether it is gone."""
    path = Path(_place_of(path))
    if any(mark_of(folder) is not None for folder in path.parents):
        with contextlib.suppress(OSError):
            path.rmdir()
    return not os.path.lexists(path)


def remove_leftovers(place: Path, names: str = "gpudiag-") -> None:
    """Remove from ``place`` this user's folders that nobody needs any more; their names begin with ``names``.

    These are folders of processes that were killed, those that are half made or half removed, and all of an earlier
    start of this system. A folder stays while it is locked, or while the environment of a process of this user names
    it: what was started in it may outlive the process that made it. What another system made stays, because its
    processes are not seen here: the place may be on a network.
    """
    with contextlib.suppress(OSError), os.scandir(place) as entries:
        for entry in entries:
            if entry.name.startswith((names, HIDDEN)):
                _remove_leftover(Path(entry.path))


def _decoded(content: bytes) -> Mark:
    """Return the mark in a file; raises ``ValueError``, ``TypeError`` or ``LookupError`` if it has none."""
    read = json.loads(content)
    identity, path, host, boot_id = (read[name] for name in ("identity", "path", "host", "boot"))
    if not all(isinstance(text, str) for text in (identity, path, host, boot_id)):
        raise TypeError("not a mark of gpudiag")
    return Mark(identity, path, host, boot_id, read["lasting"] is True)


def boot() -> str:
    """Return the identifier of this start of the system; "" if the system has none."""
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return ""


def _new_mark(folder: Path, *, lasting: bool) -> Mark:
    return Mark(secrets.token_hex(8), printable(_place_of(folder)), printable(_host()), boot(), lasting)


_Lock = tuple[int, os.stat_result] | None
"""The open descriptor of a locked mark, and the identity of its file; None on Windows."""


def _write_mark(folder: Path, mark: Mark, *, must_lock: bool = False) -> _Lock:
    """Write and lock the mark of a folder; the mark gets its name only when it is locked."""
    content = json.dumps(asdict(mark)).encode()
    if sys.platform == "win32":
        (folder / MARK).write_bytes(content)
        return None
    unfinished = folder / f"{MARK}-{mark.identity}"
    descriptor = os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, content)
        with contextlib.suppress(*(() if must_lock else (OSError,))):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        unfinished.rename(folder / MARK)
    except BaseException:
        os.close(descriptor)
        unfinished.unlink(missing_ok=True)
        raise
    return descriptor, os.fstat(descriptor)


def _unlock(lock: _Lock) -> None:
    """Close the descriptor of a mark, unless the program has closed it and reused its number."""
    with contextlib.suppress(OSError):
        if lock is not None and os.path.samestat(os.fstat(lock[0]), lock[1]):
            os.close(lock[0])


def _is_locked(folder: Path) -> bool:
    """Return whether a process has locked the mark of a folder; False also if that cannot be determined."""
    if sys.platform == "win32":
        return False
    try:
        descriptor = os.open(folder / MARK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


def _remove_leftover(folder: Path) -> None:
    mark = mark_of(folder)
    if mark is None or mark.host != printable(_host()) or sys.platform == "win32":
        return
    try:
        lock = os.open(folder / MARK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_whole = folder.name == Path(mark.path).name
        if mark.boot != boot() or (not (mark.lasting and is_whole) and not _is_named_by_a_process(folder)):
            remove(folder)
    except OSError:
        pass  # locked, or it cannot be locked at all
    finally:
        os.close(lock)


def _remove_marked(folder: Path) -> None:
    """Remove a folder, its mark last: if this process is killed meanwhile, the rest is still marked."""
    mark = mark_of(folder)
    assert mark is not None
    hidden = folder.with_name(f"{HIDDEN}{mark.identity}")
    if folder != hidden:
        folder.rename(hidden)
    for path in hidden.iterdir():
        if path.name != MARK:
            _remove_all(path)
    (hidden / MARK).unlink()
    hidden.rmdir()


def _remove_all(path: Path) -> None:
    """Remove a file, a link, or a folder with its content; whatever cannot be removed stays."""
    with contextlib.suppress(OSError):
        if stat.S_ISDIR(path.lstat().st_mode):
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def _place_of(path: Path) -> str:
    """Return the path without links, except that a path that is itself a link is not followed."""
    return str(Path(os.path.realpath(path.parent)) / path.name)


def _is_own(status: os.stat_result, kind: int) -> bool:
    return stat.S_IFMT(status.st_mode) == kind and (not hasattr(os, "geteuid") or status.st_uid == os.geteuid())


def _is_mounted_in(folder: Path) -> bool:
    """Return whether a file system is mounted at or below ``folder``: its files are not gpudiag's."""
    try:
        lines = Path("/proc/self/mountinfo").read_bytes().splitlines()
    except OSError:
        return False
    mounted = [re.sub(rb"\\(\d{3})", lambda found: bytes([int(found[1], 8)]), line.split()[4]) for line in lines]
    return any(f"{os.fsdecode(point)}/".startswith(f"{folder}/") for point in mounted)


def _is_named_by_a_process(folder: Path) -> bool:
    """Return whether the environment of a process that this user may see names the folder."""
    name = os.fsencode(folder)
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if name in environment.read_bytes():
                return True
    return False


def _host() -> str:
    return os.uname().nodename if hasattr(os, "uname") else ""
