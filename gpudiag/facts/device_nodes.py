"""The family ``device_nodes``: device files of the NVIDIA driver, and NVIDIA display controllers on the PCI bus."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from gpudiag.hostfacts import DeviceNode, DeviceNodeFacts

_NVIDIA = "0x10de"
_DISPLAY_CONTROLLER = "0x03"


def gather(root: Path = Path("/")) -> DeviceNodeFacts:
    """Return the device files under ``root/dev`` and the controllers under ``root/sys/bus/pci/devices``."""
    files = sorted([*root.glob("dev/nvidia*"), *root.glob("dev/dxg")])
    controllers = sorted(root.glob("sys/bus/pci/devices/*"))
    return DeviceNodeFacts(
        nodes=tuple(_node(file, root) for file in files if not file.is_dir()),
        pci_gpus=tuple(
            device.name
            for device in controllers
            if _read(device / "vendor") == _NVIDIA and _read(device / "class").startswith(_DISPLAY_CONTROLLER)
        ),
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
