"""Who listens on a TCP port of this machine, by ``/proc``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_TABLES = ("net/tcp", "net/tcp6")
_LISTENS = "0A"
_MOST_TABLE = 4 << 20


def listening(port: int, proc: Path = Path("/proc")) -> tuple[bool, int | None]:
    """Return whether a process listens on ``port``, and its pid; None if this user may not see which it is."""
    sockets = {inode for table in _TABLES for inode in _listeners(proc / table, port)}
    if not sockets:
        return False, None
    wanted = {f"socket:[{inode}]" for inode in sockets}
    for folder in proc.iterdir():
        if folder.name.isdecimal() and not wanted.isdisjoint(_open(folder / "fd")):
            return True, int(folder.name)
    return True, None


def _listeners(table: Path, port: int) -> list[str]:
    try:
        with table.open() as file:
            lines = file.read(_MOST_TABLE).splitlines()[1:]
    except OSError:
        return []
    rows = [line.split() for line in lines]
    return [row[9] for row in rows if len(row) > 9 and row[3] == _LISTENS and row[1].endswith(f":{port:04X}")]


def _open(folder: Path) -> Iterator[str]:
    """Yield what the descriptors of a process lead to, as far as this user may see it."""
    with suppress(OSError):  # of another user, or it has ended
        for file in folder.iterdir():
            with suppress(OSError):  # closed meanwhile
                yield str(file.readlink())
