"""Lends GPUs of a pytest session to programs that its tests start: another session, or ``gpudiag check``.

The session holds the locks of its GPUs until it ends, so a process that it started would wait for them in vain. A
variable tells that process which GPUs it was lent, and it locks these in a folder of the session instead. The loan ends
with the session, even for processes that still have the variable.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from gpudiag import folders
from gpudiag.errors import UsageError

VARIABLE = "GPUDIAG_PYTEST_LENT"
"""Variable that names the folder with the loan of this process and its children; set by the plugin itself."""
_HELD, _LENT = "held.json", "lent.json"
_SHARED = () if sys.platform == "win32" else (Path("/dev/shm"),)  # noqa: S108  # only this user may enter what is made


def session_folder() -> folders.Folder:
    """Make the folder of a session; raises ``OSError`` if no place is writable.

    The folder is where ``tempfile`` puts it, or else in shared memory: some network file systems cannot lock files, and
    some folders are not writable.
    """
    return folders.Folder("pytest", (Path(tempfile.gettempdir()), *_SHARED), must_lock=True)


@dataclass(frozen=True)
class Loan:
    """The GPUs that an outer session holds, and those that it has lent to this process."""

    folder: Path
    lent: frozenset[str]
    """The UUIDs of the lent GPUs."""
    held: frozenset[str]

    def refusal(self, uuid: str) -> UsageError:
        """Return the error for a GPU that the session holds but has not lent to this process."""
        lent = ", ".join(sorted(self.lent))
        return UsageError(
            f"The pytest session that started this process holds {uuid} for other tests; this process may use {lent}. "
            "Do not change CUDA_VISIBLE_DEVICES in it."
        )


def hold(session: Path, uuids: Iterable[str], locks: Path | None) -> None:
    """Record in a session's folder which GPUs it holds, and where their locks are."""
    folders.write(session / _HELD, json.dumps({"uuids": sorted(uuids), "locks": str(locks)}))


def lend(session: Path, name: str, uuids: Iterable[str]) -> dict[str, str]:
    """Return the variable that lends GPUs of a session to the programs that the process ``name`` starts."""
    folder = session / f"lent-{name}"
    folder.mkdir(exist_ok=True)
    folders.write(folder / _LENT, json.dumps({"uuids": sorted(uuids)}))
    return {VARIABLE: str(folder)}


def loan(locks: Path | None) -> Loan | None:
    """Return the GPUs with locks in ``locks`` that were lent to this process; None if none were."""
    named = os.environ.get(VARIABLE)
    if not named:
        return None
    folder = Path(named)
    try:
        lent = json.loads((folder / _LENT).read_text())
        held = json.loads((folder.parent / _HELD).read_text())
    except (OSError, ValueError):
        return None
    if held["locks"] != str(locks) or not folders.is_in_use(folder.parent):
        return None
    return Loan(folder, frozenset(lent["uuids"]), frozenset(held["uuids"]))


def folder_of_lock(uuid: str, locks: Path) -> Path:
    """Return the folder for the lock of a GPU; raises if waiting for it would be a deadlock with the outer session."""
    made = loan(locks)
    if made is None or uuid not in made.lent | made.held:
        return locks
    if uuid in made.lent:
        return made.folder
    raise made.refusal(uuid)
