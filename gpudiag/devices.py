"""Hands out GPUs: TensorFlow takes nearly all memory of every GPU it sees, so no two children may meet by accident."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from gpudiag import lending
from gpudiag.model import Gpu

if sys.platform != "win32":
    import fcntl

SHARED_FOLDERS = ("/run/lock", "/dev/shm")  # noqa: S108  # what lies there is opened as open_shared says
"""Where every user of the machine may leave files: the first that is so holds the locks."""


class Devices:
    """Which GPUs are in use: by this run, counted here; by other runs, told by a lock file per UUID."""

    def __init__(self, folder: Path | None) -> None:
        """``folder`` holds the locks; None: the folder that all runs on this machine share."""
        self._folder = folder
        self.room: Mapping[str, int] = {}
        """How many may use a GPU (UUID) at the same time; no limit for one that is not there."""
        self._users: dict[str, int] = {}
        self._exclusive: set[str] = set()
        self._locks: dict[str, int] = {}
        """Descriptors of the files that are locked; closing one unlocks it."""
        self._waiting_since: dict[str, float] = {}

    @property
    def folder(self) -> Path | None:
        """Where the locks are, except of GPUs that a pytest session has lent to this process; None: nowhere."""
        with contextlib.suppress(OSError):
            return self._folder or lock_folder()
        return None

    def take(self, gpus: tuple[Gpu, ...], *, exclusive: bool) -> bool:
        """Take every one of ``gpus``, or none and return False."""
        uuids = [gpu.uuid for gpu in gpus]
        if any(uuid in self._exclusive or (exclusive and self._users.get(uuid)) for uuid in uuids):
            return False
        if any(uuid in self.room and self._users.get(uuid, 0) >= self.room[uuid] for uuid in uuids):
            return False
        if not all(self._lock(uuid) for uuid in uuids):
            self._unlock_unused()
            return False
        for uuid in uuids:
            self._users[uuid] = self._users.get(uuid, 0) + 1
            if exclusive:
                self._exclusive.add(uuid)
        return True

    def release(self, gpus: tuple[Gpu, ...]) -> None:
        """Give back what ``take`` took; a GPU nobody uses is unlocked for other runs."""
        for gpu in gpus:
            self._users[gpu.uuid] -= 1
            self._exclusive.discard(gpu.uuid)
        self._unlock_unused()

    def waited_s(self, gpus: tuple[Gpu, ...]) -> float:
        """Return for how long another run has held one of ``gpus``."""
        since = [self._waiting_since[gpu.uuid] for gpu in gpus if gpu.uuid in self._waiting_since]
        return time.monotonic() - min(since) if since else 0.0

    def close(self) -> None:
        """Unlock everything."""
        self._users.clear()
        self._unlock_unused()

    def _lock(self, uuid: str) -> bool:
        if uuid in self._locks:
            return True
        file = open_shared(lending.folder_of_lock(uuid, self._folder or lock_folder()) / f"gpudiag-{uuid}.lock")
        if not _locked(file):
            os.close(file)
            self._waiting_since.setdefault(uuid, time.monotonic())
            return False
        self._waiting_since.pop(uuid, None)
        self._locks[uuid] = file
        return True

    def _unlock_unused(self) -> None:
        for uuid in [uuid for uuid in self._locks if not self._users.get(uuid)]:
            os.close(self._locks.pop(uuid))


def _locked(file: int) -> bool:
    """Lock an open file; False where somebody else has it. It ends with the process, however that ends."""
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def open_shared(path: Path) -> int:
    """Open a file for locking that any user may have made, and no user can turn into another's; make it if need be.

    In a folder that everybody may write to, neither a link is followed nor a file of somebody else created anew (Linux
    forbids the latter, fs.protected_regular); reading is enough to lock. Raises ``OSError`` for what is no plain file.
    """
    flags = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    for _ in range(100):
        with contextlib.suppress(FileNotFoundError):
            file = os.open(path, (os.O_RDWR if sys.platform == "win32" else os.O_RDONLY) | flags)
            if stat.S_ISREG(os.fstat(file).st_mode):
                return file
            os.close(file)
            raise OSError(f"{path} is no plain file")
        with contextlib.suppress(FileExistsError):
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | flags, 0o644)
            if sys.platform != "win32":
                os.fchmod(file, 0o644)  # whatever the umask: others must be able to read it
            return file
    raise OSError(f"{path} comes and goes")


def lock_folder() -> Path:
    """Return the folder of the device locks; it exists.

    It is one that all users share, whatever their ``TMPDIR``, where the system has one: a container has its own, and
    where there is none each user has one, and does not see what others hold.
    """
    for shared in map(Path, SHARED_FOLDERS):
        if _is_for_everybody(shared):
            return shared
    owner = str(os.getuid()) if hasattr(os, "getuid") else "user"
    folder = Path(tempfile.gettempdir()) / f"gpudiag-{owner}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def _is_for_everybody(folder: Path) -> bool:
    """Return True for a folder of root in which everybody may make files, and nobody remove those of others."""
    try:
        status = folder.stat()
    except OSError:
        return False
    everybody = stat.S_ISVTX | stat.S_IWOTH | stat.S_IXOTH
    return status.st_uid == 0 and status.st_mode & everybody == everybody and os.access(folder, os.W_OK | os.X_OK)
