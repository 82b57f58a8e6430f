"""The family ``device_nodes``: NVIDIA's device files, GPUs on the PCI bus, IOMMUs and network interfaces."""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from pathlib import Path

from gpudiag.facts import printable, read_text, user_name
from gpudiag.facts.kernel import ADDRESS
from gpudiag.model.facts import DeviceNode, DeviceNodeFacts, is_gpu_file

_NVIDIA = "0x10de"
_OTHERS = {"0x8086": "Intel", "0x1002": "AMD"}
_DISPLAY_CONTROLLER = "0x03"


def is_needed(name: str) -> bool:
    """Return whether a file in ``/dev`` must be a device: the control files, a GPU's own, and ``dxg`` of WSL.

    There are folders besides, such as ``nvidia-caps``.
    """
    return name in ("nvidiactl", "nvidia-uvm", "dxg") or is_gpu_file(f"/dev/{name}")


def gather(root: Path = Path("/")) -> DeviceNodeFacts:
    """Return the devices whose files are under ``root/dev`` and ``root/sys``."""
    files = sorted([*root.glob("dev/nvidia*"), *root.glob("dev/dxg")])
    vendors = {
        device: read_text(device / "vendor").strip()
        for device in sorted(root.glob("sys/bus/pci/devices/*"))
        if read_text(device / "class").startswith(_DISPLAY_CONTROLLER)
    }
    own = [device for device, vendor in vendors.items() if vendor == _NVIDIA]
    drivers = {device.name: _driver(read_text(device / "uevent")) for device in own}
    iommu_groups = {device.name: read_text(device / "iommu_group/type").strip() for device in own}
    return DeviceNodeFacts(
        nodes=tuple(_node(file, root) for file in files if is_needed(file.name) or not file.is_dir()),
        pci_gpus=tuple(device.name for device in own),
        bound={name: driver for name, driver in drivers.items() if driver},
        other_gpus={device.name: _OTHERS[vendor] for device, vendor in vendors.items() if vendor in _OTHERS},
        groups=_groups(root),
        models={device.name: model for device in own if (model := read_text(device / "device").strip())},
        without_memory_region=tuple(device.name for device in own if _lacks_a_region(read_text(device / "resource"))),
        bridges={device.name: above for device in vendors if (above := _bridges(device))},
        asleep=tuple(device.name for device in own if read_text(device / "power_state").strip() == "D3cold"),
        iommu_groups={name: group for name, group in iommu_groups.items() if group},
        iommus=tuple(sorted(file.name for file in root.glob("sys/class/iommu/*"))),
        iommu_options=tuple(word for word in read_text(root / "proc/cmdline").split() if "iommu" in word),
        network=tuple(sorted(printable(file.name) for file in root.glob("sys/class/net/*"))),
        majors=_majors(read_text(root / "proc/devices")),
        module_in_sysfs=os.path.exists("/sys/module/nvidia") if root == Path("/") else None,  # noqa: PTH110
        private_dev=_is_private(read_text(root / "proc/self/mountinfo")),
    )


def _bridges(device: Path) -> tuple[str, ...]:
    """Return the bridges above a device: ``/sys/devices/pci0000:16/0000:16:01.0/0000:17:00.0``."""
    return tuple(part for part in device.resolve().parent.parts if ADDRESS.fullmatch(part))


def _lacks_a_region(regions: str) -> bool:
    """Return whether the first or the second region begins at address 0: NVIDIA's module then refuses the GPU.

    Each line has first address, last address and flags: ``0x00000000fb000000 0x00000000fbffffff 0x0000000000040200``.
    """
    return any(int(line.split()[0], 16) == 0 for line in regions.splitlines()[:2] if re.match(r"0x[\da-f]+ ", line))


def _is_private(mounts: str) -> bool:
    """Return whether the last line about ``/dev`` is not such as ``24 27 0:6 / /dev rw - devtmpfs devtmpfs rw``."""
    lines = [line for line in mounts.splitlines() if re.search(r"^\S+ \S+ \S+ \S+ /dev ", line)]
    return bool(mounts) and not (lines and " - devtmpfs " in lines[-1])


def _majors(devices: str) -> dict[str, int]:
    """Return the numbers of NVIDIA's drivers, from lines such as ``511 nvidia-uvm``."""
    words = (line.split() for line in devices.partition("Block devices:")[0].splitlines())
    return {row[1]: int(row[0]) for row in words if len(row) == 2 and row[1].startswith("nvidia")}


def _driver(event: str) -> str:
    """Return the driver in a device's ``uevent``, whose lines are such as ``DRIVER=nvidia``; "" if it has none."""
    return dict(line.partition("=")[::2] for line in event.splitlines()).get("DRIVER", "")


def _node(file: Path, root: Path) -> DeviceNode:
    status = file.lstat()
    with suppress(OSError):  # a link to nothing is described itself
        status = file.stat()
    is_device = stat.S_ISCHR(status.st_mode)
    return DeviceNode(
        path=printable(f"/{file.relative_to(root)}"),
        mode=stat.filemode(status.st_mode),
        readable=_may(file, status, os.R_OK, root),
        writable=_may(file, status, os.W_OK, root),
        group=_group(status.st_gid),
        group_id=status.st_gid,
        owner=user_name(status.st_uid),
        major=os.major(status.st_rdev) if is_device else None,
        minor=os.minor(status.st_rdev) if is_device else None,
        nodev=is_device and _is_nodev(file),
    )


def _may(file: Path, status: os.stat_result, what: int, root: Path) -> bool:
    """Return whether this process may read or write ``file``; on a faked machine it never counts as root."""
    if root != Path("/"):
        return status.st_mode & what == what  # os.R_OK and os.W_OK are the bits for others
    return os.access(file, what)


def _is_nodev(file: Path) -> bool:
    try:
        return bool(os.statvfs(file).f_flag & os.ST_NODEV)
    except OSError:
        return False


def _groups(root: Path) -> tuple[str, ...]:
    if root != Path("/") or not hasattr(os, "getgroups"):
        return ()
    return tuple(sorted(map(_group, {os.getegid(), *os.getgroups()})))


def _group(number: int) -> str:
    try:
        import grp

        return printable(grp.getgrgid(number).gr_name)
    except (ImportError, KeyError):  # Windows; a container may lack the name
        return str(number)
