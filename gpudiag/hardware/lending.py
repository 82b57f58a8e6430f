"""GPUs that a pytest session lends to what its tests start: another session, or ``gpudiag check``.

The session holds the locks of its GPUs until it ends, so a process that it started would wait for them in vain. A
variable names to that process what it was lent, and it locks these GPUs in a folder of the session instead. All of this
is void as soon as the session has ended, whichever processes have inherited the variable.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from gpudiag.errors import UsageError

if sys.platform != "win32":
    import fcntl

VARIABLE = "GPUDIAG_PYTEST_LENT"
"""Names the folder that lists what was lent to this process and those that it starts; set by the plugin itself."""
_PREFIX = "gpudiag-pytest-"
_OWNER, _HELD, _LENT = "owner", "held.json", "lent.json"
_SHARED = () if sys.platform == "win32" else (Path("/dev/shm"),)  # noqa: S108  # only this user may enter what is made


class Folder:
    """A temporary folder that exists as long as its process; if that was killed, the next process removes it.

    It lies where ``tempfile`` puts it, else in the memory that processes share: on some network file systems no file
    can be locked, and some folders cannot be written to. Raises ``OSError`` if there is no place.
    """

    def __init__(self) -> None:
        self._owner = -1
        places = [Path(tempfile.gettempdir()), *_SHARED]
        for one in (one for place in places for one in place.glob(f"{_PREFIX}*")):
            if _is_ours(one) and (one / _OWNER).exists() and not _is_owned(one):
                shutil.rmtree(one, ignore_errors=True)
        failed: OSError | None = None
        for place in places:
            try:
                self._make(place)
                return
            except OSError as error:
                failed = failed or error
        assert failed is not None
        raise failed  # of the place where it should be

    def _make(self, place: Path) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
        if sys.platform != "win32":
            try:
                unfinished = self.path / f".{_OWNER}"
                self._owner = os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                fcntl.flock(self._owner, fcntl.LOCK_EX)
                unfinished.rename(self.path / _OWNER)  # it has this name only once it is locked
            except OSError:
                self.close()
                raise

    def close(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._owner >= 0:
            os.close(self._owner)
            self._owner = -1


@dataclass(frozen=True)
class Loan:
    """What the session that started this process holds, and has lent to it."""

    folder: Path
    lent: frozenset[str]
    """UUIDs."""
    held: frozenset[str]

    def refusal(self, uuid: str) -> UsageError:
        """Return the error for a GPU that the session holds and has not lent to this process."""
        lent = ", ".join(sorted(self.lent))
        return UsageError(
            f"The pytest session that started this process holds {uuid} for other tests; this process may use {lent}. "
            "Do not change CUDA_VISIBLE_DEVICES in it."
        )


def hold(session: Path, uuids: Iterable[str], locks: Path | None) -> None:
    """Note in a session's folder which GPUs it holds, and where their locks are."""
    _write(session / _HELD, {"uuids": sorted(uuids), "locks": str(locks)})


def lend(session: Path, name: str, uuids: Iterable[str]) -> dict[str, str]:
    """Return the variable that lends GPUs of a session to what the calling process, ``name``, starts."""
    folder = session / f"lent-{name}"
    folder.mkdir(exist_ok=True)
    _write(folder / _LENT, {"uuids": sorted(uuids)})
    return {VARIABLE: str(folder)}


def loan(locks: Path | None) -> Loan | None:
    """Return which of the GPUs whose locks are in ``locks`` were lent to this process; None if none were."""
    named = os.environ.get(VARIABLE)
    if not named:
        return None
    folder = Path(named)
    try:
        lent = json.loads((folder / _LENT).read_text())
        held = json.loads((folder.parent / _HELD).read_text())
    except (OSError, ValueError):
        return None
    if held["locks"] != str(locks) or not _is_ours(folder.parent) or not _is_owned(folder.parent):
        return None
    return Loan(folder, frozenset(lent["uuids"]), frozenset(held["uuids"]))


def folder_of_lock(uuid: str, locks: Path) -> Path:
    """Return the folder for the lock of a GPU; raises if that would mean to wait for the session that waits for us."""
    made = loan(locks)
    if made is None or uuid not in made.lent | made.held:
        return locks
    if uuid in made.lent:
        return made.folder
    raise made.refusal(uuid)


def _write(path: Path, content: object) -> None:
    written = path.with_suffix(f".{os.getpid()}")
    written.write_text(json.dumps(content))
    written.rename(path)


def _is_ours(folder: Path) -> bool:
    try:
        status = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and (sys.platform == "win32" or status.st_uid == os.getuid())


def _is_owned(folder: Path) -> bool:
    """Return whether the process that created the folder still runs."""
    if sys.platform == "win32":
        return False
    try:
        owner = os.open(folder / _OWNER, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, owner)
        try:
            fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
