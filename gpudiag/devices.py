"""Hands out GPUs: TensorFlow takes nearly all memory of every GPU it sees, so no two children may meet by accident."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from gpudiag.model import Gpu

if TYPE_CHECKING:
    from filelock import BaseFileLock


class Devices:
    """Which GPUs are in use: by this run, counted here; by other runs, told by a lock file per UUID."""

    def __init__(self, folder: Path | None) -> None:
        """``folder`` holds the locks; None: the folder that all runs of this user share."""
        self._folder = folder
        self.room: Mapping[str, int] = {}
        """How many may use a GPU (UUID) at the same time; no limit for one that is not there."""
        self._users: dict[str, int] = {}
        self._exclusive: set[str] = set()
        self._locks: dict[str, BaseFileLock] = {}
        self._waiting_since: dict[str, float] = {}

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
        from filelock import FileLock, Timeout

        lock = FileLock((self._folder or lock_folder()) / f"{uuid}.lock")
        try:
            lock.acquire(blocking=False)
        except Timeout:
            self._waiting_since.setdefault(uuid, time.monotonic())
            return False
        self._waiting_since.pop(uuid, None)
        self._locks[uuid] = lock
        return True

    def _unlock_unused(self) -> None:
        for uuid in [uuid for uuid in self._locks if not self._users.get(uuid)]:
            self._locks.pop(uuid).release()


def lock_folder() -> Path:
    """Return the folder of this user's device locks; it exists."""
    owner = str(os.getuid()) if hasattr(os, "getuid") else "user"
    folder = Path(tempfile.gettempdir()) / f"gpudiag-{owner}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder
