"""Reserves GPUs: TensorFlow takes nearly all memory of every GPU it sees, so two children must not share one."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from gpudiag.hardware import lending
from gpudiag.hardware.processes import identify
from gpudiag.model.report import Gpu
from gpudiag.text import one_line
from gpudiag.trust import user_name

if sys.platform != "win32":
    import fcntl

SHARED_FOLDERS = ("/run/lock", "/dev/shm")  # noqa: S108  # what lies there is opened as open_shared says
"""Folders in which every user of the machine may create files: the first one that allows it holds the locks."""


class GpuLocks:
    """The GPUs in use: by this run, counted here; by other runs, shown by a lock file for each UUID."""

    def __init__(self, folder: Path | None) -> None:
        """Use the locks in ``folder``; None: the folder that all runs on this machine share."""
        self._folder = folder
        self.room: Mapping[str, int] = {}
        """How many may use a GPU (by UUID) at the same time; a GPU that is not listed has no limit."""
        self._users: dict[str, int] = {}
        self._exclusive: set[str] = set()
        self._locks: dict[str, int] = {}
        """Descriptors of the locked files; closing one unlocks it."""
        self._waiting_since: dict[str, float] = {}
        self._holders: dict[str, str] = {}
        self.unlocked: dict[str, str] = {}
        """GPUs (by UUID) whose lock cannot be used, each with the reason in a sentence."""

    @property
    def folder(self) -> Path | None:
        """The folder of the locks, except for GPUs that a pytest session lent to this process; None: there is none."""
        with contextlib.suppress(OSError):
            return self._folder or lock_folder()
        return None

    def take(self, gpus: tuple[Gpu, ...], *, exclusive: bool) -> bool:
        """Lock all ``gpus`` and return True, or lock none and return False."""
        uuids = [gpu.uuid for gpu in gpus]
        if any(uuid in self._exclusive or (exclusive and self._users.get(uuid)) for uuid in uuids):
            return False
        if any(uuid in self.room and self._users.get(uuid, 0) >= self.room[uuid] for uuid in uuids):
            return False
        if not all(self._lock(gpu) for gpu in gpus):
            self._unlock_unused()
            return False
        for uuid in uuids:
            self._users[uuid] = self._users.get(uuid, 0) + 1
            if exclusive:
                self._exclusive.add(uuid)
        return True

    def release(self, gpus: tuple[Gpu, ...]) -> None:
        """Release what ``take`` took; a GPU that nobody uses is unlocked for other runs."""
        for gpu in gpus:
            self._users[gpu.uuid] -= 1
            self._exclusive.discard(gpu.uuid)
        self._unlock_unused()

    def waited_s(self, gpus: tuple[Gpu, ...]) -> float:
        """Return for how many seconds another run has held one of ``gpus``."""
        since = [self._waiting_since[gpu.uuid] for gpu in gpus if gpu.uuid in self._waiting_since]
        return time.monotonic() - min(since) if since else 0.0

    def close(self) -> None:
        """Unlock everything."""
        self._users.clear()
        self._exclusive.clear()
        self._unlock_unused()

    def holder(self, gpus: tuple[Gpu, ...]) -> str:
        """Return the process that holds one of ``gpus``, such as ``process 123 of root``; "" if the system does not
        tell."""
        return next(filter(None, (self._holders.get(gpu.uuid, "") for gpu in gpus)), "")

    def _lock(self, gpu: Gpu) -> bool:
        """Lock ``gpu``; return False if another run holds it. If it cannot be locked, it is used without a lock,
        with a note."""
        if gpu.uuid in self._locks or gpu.uuid in self.unlocked:
            return True
        try:
            path = lending.folder_of_lock(gpu.uuid, self._folder or lock_folder()) / _lock_name(gpu.uuid)
            file = open_shared(path)
            locked = _locked(file)
            while locked and not _is(path, file):  # it was removed meanwhile, and others lock the next one
                os.close(file)
                file = open_shared(path)
                locked = _locked(file)
        except OSError as error:
            reason = one_line(f"{error.filename}: {error.strerror}" if error.filename else str(error))
            self.unlocked[gpu.uuid] = f"GPU {gpu.index} is not locked against other runs of gpudiag: {reason}"
            return True
        if not locked:
            self._waiting_since.setdefault(gpu.uuid, time.monotonic())
            self._holders[gpu.uuid] = _holder(file)
            os.close(file)
            return False
        self._waiting_since.pop(gpu.uuid, None)
        self._holders.pop(gpu.uuid, None)
        self._locks[gpu.uuid] = file
        return True

    def _unlock_unused(self) -> None:
        for uuid in [uuid for uuid in self._locks if not self._users.get(uuid)]:
            os.close(self._locks.pop(uuid))


_HELD = (errno.EAGAIN, errno.EWOULDBLOCK, errno.EACCES, errno.EDEADLK)
"""Error numbers of a file that another process has locked: the first two from flock, the others on Windows."""


def _locked(file: int) -> bool:
    """Lock an open file; return False if another process has locked it. The lock ends with the process.

    Closes the file and raises ``OSError`` if it cannot be locked at all.
    """
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _HELD:
            return False
        os.close(file)
        raise  # no lock can be had on this file system
    return True


def _lock_name(uuid: str) -> str:
    return f"gpudiag-{uuid.replace('/', '-')}.lock"  # drivers before 470 call a MIG instance MIG-GPU-.../1/0


def _is(path: Path, file: int) -> bool:
    """Return whether ``path`` still names the open file."""
    try:
        return os.path.samestat(path.lstat(), os.fstat(file))
    except FileNotFoundError:
        return False


def _holder(file: int) -> str:
    """Return the process that has locked an open file, and its user, if Linux shows them.

    A lock in ``/proc/locks`` looks like ``1: FLOCK ADVISORY WRITE 123 00:1c:4711 0 EOF``. The process is 0 if it runs
    in another container.
    """
    status = os.fstat(file)
    place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    try:
        locks = Path("/proc/locks").read_text(encoding="utf-8", errors="replace")
        process = next(words[4] for words in map(str.split, locks.splitlines()) if place in words and "FLOCK" in words)
        owner = Path(f"/proc/{process}").stat().st_uid
    except (OSError, StopIteration):
        return ""
    known = identify(int(process))
    words = ", ".join(filter(None, (known.command, known.job, known.rank)))
    return f"process {process} of {user_name(owner)}{f' ({words})' if words else ''}"


def open_shared(path: Path) -> int:
    """Open a file for locking; any user may have created it. Create it if necessary.

    In a folder that everybody can write to, no link is followed, and another user's file is never opened for writing
    with O_CREAT (Linux forbids it: fs.protected_regular); to lock a file, reading is enough. Raises ``OSError`` for
    what is not a plain file.
    """
    flags = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    for _ in range(100):
        with contextlib.suppress(FileNotFoundError):
            try:
                file = os.open(path, (os.O_RDWR if sys.platform == "win32" else os.O_RDONLY) | flags)
            except OSError as error:
                if error.errno == errno.ELOOP:
                    raise OSError(f"{path} is a link, and not a plain file") from None
                raise
            if stat.S_ISREG(os.fstat(file).st_mode):
                return file
            os.close(file)
            raise OSError(f"{path} is not a plain file, and cannot be locked")
        with contextlib.suppress(FileExistsError):
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | flags, 0o644)
            if sys.platform != "win32":
                os.fchmod(file, 0o644)  # with any umask: others must be able to read it
            return file
    raise OSError(f"{path} is created and removed again and again")


def lock_folder() -> Path:
    """Return the folder of the device locks, which exists. Raises ``OSError`` if none can be created.

    This is the folder that all users share, whatever their ``TMPDIR``, if the system has one; a container has its own.
    Otherwise each user has a separate folder, and does not see what others hold.
    """
    for shared in map(Path, SHARED_FOLDERS):
        if _is_for_everybody(shared):
            return shared
    owner = str(os.getuid()) if hasattr(os, "getuid") else "user"
    folder = Path(tempfile.gettempdir()) / f"gpudiag-{owner}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise OSError(f"{folder} is not a folder")
    if hasattr(os, "getuid"):
        if status.st_uid != os.getuid():
            raise OSError(f"{folder} belongs to {user_name(status.st_uid)}")
        if stat.S_IMODE(status.st_mode) != 0o700:
            folder.chmod(0o700)
    return folder


def _is_for_everybody(folder: Path) -> bool:
    """Return True for a folder of root in which everybody may create files, and nobody may delete those of others."""
    try:
        status = folder.stat()
    except OSError:
        return False
    everybody = stat.S_ISVTX | stat.S_IWOTH | stat.S_IXOTH
    return status.st_uid == 0 and status.st_mode & everybody == everybody and os.access(folder, os.W_OK | os.X_OK)
