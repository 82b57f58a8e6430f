"""Identifies the processes that hold memory of a GPU, from ``/proc``."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from pathlib import Path, PurePath

import msgspec

from gpudiag.facts import printable, read_text, user_name
from gpudiag.model.facts import GpuProcess, NvmlDevice, ProcessIdentity

_FIRST_NAMESPACE = "pid:[4026531836]"
"""The kernel's first pid namespace (PROC_PID_INIT_INO), in which NVML counts processes."""
_JOBS = (
    (re.compile(r"slurm.{0,200}/job_(\d+)"), "job {} of Slurm"),
    (re.compile(r"kubepods.{0,300}pod([0-9a-f][0-9a-f_-]{7})"), "pod {}"),
    (re.compile(r"docker[/-]([0-9a-f]{12})"), "container {} of Docker"),
    (re.compile(r"libpod-([0-9a-f]{12})"), "container {} of Podman"),
    (re.compile(r"(?:cri-containerd|crio)-([0-9a-f]{12})"), "container {}"),
    (re.compile(r"lxc(?:\.payload)?[/.]([\w-]+)"), "container {} of LXC"),
    (re.compile(r"/([\w@.-]+)\.service$"), "service {}"),
)
_TICKS = 100
"""Ticks per second of the times in ``/proc/<pid>/stat``: USER_HZ, the same on every architecture that NVIDIA
supports."""


def with_holders(device: NvmlDevice, root: Path) -> NvmlDevice:
    """Return ``device`` with the details of its processes in ``root/proc``.

    In another pid namespace nothing is added: NVML's numbers are those of the first one, and mean other processes here.
    """
    if not device.processes or not _same_numbers(root):
        return device
    processes = tuple(msgspec.structs.replace(process, holder=_holder(process, root)) for process in device.processes)
    return msgspec.structs.replace(device, processes=processes)


def _same_numbers(root: Path) -> bool:
    if root != Path("/"):
        return True
    try:
        return str((root / "proc/self/ns/pid").readlink()) == _FIRST_NAMESPACE
    except OSError:
        return False


def _holder(process: GpuProcess, root: Path) -> ProcessIdentity | None:
    folder = root / f"proc/{process.pid}"
    status = dict(line.split(":", 1) for line in read_text(folder / "status").splitlines() if ":" in line)
    if not status:
        return None
    cgroup = read_text(folder / "cgroup")
    parent = status.get("PPid", "").strip()
    return ProcessIdentity(
        user=user_name(int(numbers[0])) if (numbers := status.get("Uid", "").split()) else None,
        command=_command(read_text(folder / "cmdline").split("\0")) or printable(status.get("Name", "").strip()),
        started_at=_started(root, folder),
        parent_gone=parent == "1" and process.pid != 1 and ".service" not in cgroup if parent else None,
        job=next((name.format(found[1]) for shape, name in _JOBS if (found := _search(shape, cgroup))), None),
    )


def _search(shape: re.Pattern[str], cgroup: str) -> re.Match[str] | None:
    return next(filter(None, map(shape.search, cgroup.splitlines())), None)


def _command(words: list[str]) -> str | None:
    """Return a process's program and its script or module, without other arguments, which can hold secrets."""
    if not words or not words[0]:
        return None
    shown = [PurePath(words[0]).name]
    rest = [word for word in words[1:] if word]
    if rest[:1] == ["-m"]:
        shown += rest[:2]
    elif script := next((word for word in rest if re.search(r"\.(py|sh|ipynb)$", word)), None):
        shown.append(PurePath(script).name)
    return printable(" ".join(shown)) + (" ..." if len(rest) > len(shown) - 1 else "")


def _started(root: Path, folder: Path) -> str | None:
    boot = re.search(r"^btime (\d+)", read_text(root / "proc/stat"), re.MULTILINE)
    fields = read_text(folder / "stat").rpartition(")")[2].split()  # after the name, which may hold anything
    if boot is None or len(fields) < 20 or not fields[19].isdecimal():
        return None
    return datetime.fromtimestamp(int(boot[1]) + int(fields[19]) // _TICKS, timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
