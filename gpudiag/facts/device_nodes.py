"""The family ``device_nodes``: NVIDIA's device files and GPUs on the PCI bus, IOMMUs and network interfaces."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from gpudiag.hostfacts import DeviceNode, DeviceNodeFacts

_NVIDIA = "0x10de"
_DISPLAY_CONTROLLER = "0x03"


def gather(root: Path = Path("/")) -> DeviceNodeFacts:
    """Return the devices whose files are under ``root/dev`` and ``root/sys``."""
    files = sorted([*root.glob("dev/nvidia*"), *root.glob("dev/dxg")])
    gpus = [
        device
        for device in sorted(root.glob("sys/bus/pci/devices/*"))
        if _read(device / "vendor") == _NVIDIA and _read(device / "class").startswith(_DISPLAY_CONTROLLER)
    ]
    groups = {device.name: _read(device / "iommu_group/type") for device in gpus}
    return DeviceNodeFacts(
        nodes=tuple(_node(file, root) for file in files if not file.is_dir()),
        pci_gpus=tuple(device.name for device in gpus),
        iommu_groups={name: group for name, group in groups.items() if group},
        iommus=tuple(sorted(file.name for file in root.glob("sys/class/iommu/*"))),
        iommu_options=tuple(word for word in _read(root / "proc/cmdline").split() if "iommu" in word),
        network=tuple(sorted(file.name for file in root.glob("sys/class/net/*"))),
    )


def _node(file: Path, root: Path) -> DeviceNode:
    return DeviceNode(
        path=f"/{file.relative_to(root)}",
        mode=stat.filemode(file.lstat().st_mode),
        readable=os.access(file, os.R_OK),
        writable=os.access(file, os.W_OK),
    )


def _read(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""
