"""What NVIDIA's kernel module shows in /proc, /dev and /sys, and what else the specification puts on the machine."""

from __future__ import annotations

import shutil
from pathlib import Path

from gpudiag.simulator.spec import MachineSpec


def write(root: Path, spec: MachineSpec) -> None:
    """Create the files of the machine ``spec`` below ``root``: plain files in place of a real machine's devices."""
    version = root / "proc/driver/nvidia/version"
    version.parent.mkdir(parents=True)
    version.write_text(f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {spec.driver_version}  (simulated)\n")
    nodes = root / "dev"
    nodes.mkdir()
    for name in ("nvidiactl", "nvidia-uvm", *(f"nvidia{number}" for number in range(len(spec.gpus)))):
        (nodes / name).touch()
        (nodes / name).chmod(0o666)
    for gpu in spec.gpus:
        device = root / "sys/bus/pci/devices" / gpu.pci_bus_id.lower()
        device.mkdir(parents=True)
        (device / "vendor").write_text("0x10de\n")  # NVIDIA
        (device / "class").write_text("0x030200\n")  # 3D controller
    for path, content in spec.files:
        file = root / path.lstrip("/")
        if content is None:
            shutil.rmtree(file) if file.is_dir() else file.unlink(missing_ok=True)
        else:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content)
    for path, mode in spec.modes:
        (root / path.lstrip("/")).chmod(mode)
