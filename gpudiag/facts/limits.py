"""The limits that the kernel holds this process to: control groups, ``ulimit``, overcommit. Part of the family
``container``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import msgspec

from gpudiag.facts import printable, read_text
from gpudiag.hardware import processes
from gpudiag.model.facts import Limit

_DEEPEST = 20
"""The most control groups above each other that are looked at."""
_UNLIMITED = 1 << 62
"""Control groups of version 1 write a number near 2**63 for no limit."""
_ULIMITS = ("Max processes", "Max open files", "Max address space", "Max data size", "Max locked memory")
_OF_ADDRESSES = ("Max address space", "Max data size")
_FILES = {
    "memory": {
        1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.oom_control", "oom_kill"),
        2: ("memory.max", "memory.current", "memory.events", "oom_kill"),
    },
    "pids": dict.fromkeys((1, 2), ("pids.max", "pids.current", "pids.events", "max")),
}
"""For each controller and version of control groups: the files of the limit, of its use and of the events, and the
event to count."""


def limits(root: Path) -> tuple[Limit, ...]:
    """Return the limits in force for this process, by the files under ``root``."""
    return (*filter(None, (_of_controller(root, name) for name in _FILES)), *_ulimits(root), *_overcommit(root))


def limits_after(root: Path, before: tuple[Limit, ...]) -> tuple[Limit, ...]:
    """Return the limits in force now, with what the kernel has counted since ``before`` was read."""
    counted = {limit.place: limit.reached for limit in before}
    return tuple(
        msgspec.structs.replace(limit, during_run=max(0, limit.reached - counted.get(limit.place, 0)))
        for limit in limits(root)
    )


def control_group(root: Path, controller: str) -> str | None:
    """Return the path of this process's control group, of ``controller`` if that has one; None if it is in none.

    A machine may have several hierarchies of control groups, in some of which every process is at the root, ``/``.
    """
    own = _own_groups(root)
    paths = [own[name] for name in (controller, "", "name=systemd") if name in own]
    return next((path for path in paths if path != "/"), next(iter(paths), None))


def _own_groups(root: Path) -> dict[str, str]:
    """Return the path of this process's control group for each controller; that of version 2 has the name ""."""
    groups = {}
    for line in read_text(root / "proc/self/cgroup").splitlines():
        names, _, path = line.partition(":")[2].partition(":")
        groups.update(dict.fromkeys(names.split(","), path) if path else {})
    return groups


def _of_controller(root: Path, controller: str) -> Limit | None:
    """Return the tightest limit of a controller; of several that are equal, one that was reached."""
    found = (_limit(root, folder, controller, version) for folder, version in _folders(root, controller))
    return min(filter(None, found), key=lambda limit: (limit.value, -limit.reached), default=None)


def _folders(root: Path, controller: str) -> Iterator[tuple[Path, int]]:
    """Yield the control groups of this process, the innermost first, with the version of control groups."""
    groups = _own_groups(root)
    for line in read_text(root / "proc/self/mountinfo").splitlines():
        left, _, right = line.partition(" - ")
        fields, kind = left.split(), right.split()
        if len(fields) < 5 or len(kind) < 3:
            continue
        version = {"cgroup": 1, "cgroup2": 2}.get(kind[0])
        if version is None or (version == 1 and controller not in kind[2].split(",")):
            continue
        group, mounted = groups.get("" if version == 2 else controller, "/"), fields[3].rstrip("/")
        # In a container its own group may be mounted, while the kernel gives the path from the root of the host.
        inner = group.removeprefix(mounted) if f"{group}/".startswith(f"{mounted}/") else "/"
        below = PurePosixPath(inner.strip("/"))
        for folder in (below, *below.parents)[:_DEEPEST]:
            yield root / fields[4].lstrip("/") / folder, version


def _limit(root: Path, folder: Path, controller: str, version: int) -> Limit | None:
    limit_file, used_file, events_file, event = _FILES[controller][version]
    text = read_text(folder / limit_file).strip()
    if not text.isdecimal() or int(text) >= _UNLIMITED:
        return None
    used = read_text(folder / used_file).strip()
    events = dict(line.split() for line in read_text(folder / events_file).splitlines() if line.count(" ") == 1)
    return Limit(
        name=f"{controller}.max",
        value=int(text),
        place=printable(f"/{(folder / limit_file).relative_to(root)}"),
        used=int(used) if used.isdecimal() else None,
        reached=int(events.get(event, 0)),
    )


def _ulimits(root: Path) -> Iterator[Limit]:
    """Yield the soft limits in lines such as ``Max locked memory 65536 65536 bytes``.

    On a simulated machine, whose files lack them, its programs are held to the limits of addresses of this process.
    """
    text = read_text(root / "proc/self/limits")
    names, own = (_ULIMITS, text) if text else (_OF_ADDRESSES, read_text(Path("/proc/self/limits")))
    for line in own.splitlines():
        for name in names:
            if line.startswith(name) and (found := re.match(r"\s+(\d+)\s+(\S+)", line[len(name) :])):
                used = _threads(root) if name == "Max processes" else None
                since = _since(line) if own is not text or root == Path("/") else ""
                yield Limit(name, int(found[1]), "/proc/self/limits", used, is_hard=found[1] == found[2], since=since)


def _since(line: str) -> str:
    """Return the outermost ancestor of this process whose limits have ``line``, if its parent's have not."""
    if not line.startswith(_OF_ADDRESSES):
        return ""
    held = None
    for pid in processes.ancestors(Path("/")):
        theirs = read_text(Path(f"/proc/{pid}/limits"))
        if theirs and line not in theirs:
            named = processes.identify(held) if held else None
            return "" if named is None else f"process {held} ({named.command})"
        held = pid
    return ""


def _threads(root: Path) -> int | None:
    """Return how many threads the machine has, of all users (``proc_loadavg(5)``); None if it is not known."""
    fields = read_text(root / "proc/loadavg").split()
    total = fields[3].partition("/")[2] if len(fields) > 3 else ""
    return int(total) if total.isdecimal() else None


def _overcommit(root: Path) -> Iterator[Limit]:
    """Yield how much memory the kernel promises all programs together, if it promises no more than it has."""
    if read_text(root / "proc/sys/vm/overcommit_memory").strip() == "2":
        figures = dict(re.findall(r"^(Commit\w+): +(\d+) kB", read_text(root / "proc/meminfo"), re.MULTILINE))
        if "CommitLimit" in figures:
            used = int(figures["Committed_AS"]) << 10 if "Committed_AS" in figures else None
            yield Limit("vm.overcommit_memory", int(figures["CommitLimit"]) << 10, "/proc/meminfo", used)
