"""Identifies the processes that hold memory of a GPU, from ``/proc``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from gpudiag.facts import read_text
from gpudiag.hardware.processes import identify, opening, uses_gpu
from gpudiag.model.facts import ZOMBIE, GpuProcess, NvmlDevice, ProcessIdentity
from gpudiag.model.visibility import IDLE_BYTES

_FIRST_NAMESPACE = "pid:[4026531836]"
"""The kernel's first pid namespace (PROC_PID_INIT_INO), in which NVML counts processes."""
_MOST_OPENERS = 8
_HERE = Path("/")


def with_holders(device: NvmlDevice, root: Path) -> NvmlDevice:
    """Return ``device`` with the details of its processes in ``root/proc``.

    In another pid namespace NVML's numbers may be those of the first one, and mean other processes here: a process is
    added only if it uses a GPU, or is a zombie, of which nothing more can be seen.
    If memory is held and NVML lists nobody, the processes that have the GPU's device file open are added.
    """
    if not device.processes:
        hidden = device.memory_used_bytes > IDLE_BYTES
        return msgspec.structs.replace(device, opened_by=tuple(_openers(device, root))) if hidden else device
    processes = tuple(
        msgspec.structs.replace(process, holder=_holder(process.pid, root)) for process in device.processes
    )
    return msgspec.structs.replace(device, processes=processes)


def _holder(pid: int, root: Path) -> ProcessIdentity | None:
    if _same_numbers(root) and (root == _HERE or (root / f"proc/{pid}").exists() or not _is_meant(pid)):
        return identify(pid, root)
    return identify(pid) if _is_meant(pid) else None  # processes on simulated GPUs are this machine's


def _is_meant(pid: int) -> bool:
    """Return whether the process of this number in this pid namespace is the one that NVML means."""
    return uses_gpu(pid) or identify(pid).state == ZOMBIE


def _openers(device: NvmlDevice, root: Path) -> Iterator[GpuProcess]:
    """Yield the processes with the GPU's device file open; the driver says which number the file has."""
    information = read_text(root / f"proc/driver/nvidia/gpus/{device.pci_bus_id}/information")
    minor = re.search(r"^Device Minor:\s*(\d+)", information, re.MULTILINE)
    if minor is not None:
        for number, pid in enumerate(opening(Path(f"/dev/nvidia{minor[1]}"), root)):
            if number == _MOST_OPENERS:
                return
            yield GpuProcess(pid, None, holder=identify(pid, root))


def _same_numbers(root: Path) -> bool:
    if root != _HERE:
        return True
    try:
        return str((root / "proc/self/ns/pid").readlink()) == _FIRST_NAMESPACE
    except OSError:
        return False
