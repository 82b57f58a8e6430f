"""The files of NVIDIA's kernel module in /proc, /dev and /sys, and other files of a specification."""

from __future__ import annotations

from pathlib import Path

from gpudiag.simulator.spec import MachineSpec


def write(root: Path, spec: MachineSpec) -> None:
    """Create the files of the machine ``spec`` below ``root``: plain files in place of a real machine's devices."""
    files = _of_the_driver(spec)
    folders = {path.parent for path in files}
    for name, content in spec.files:
        path = Path(name)
        if content is None:
            files = {file: text for file, text in files.items() if not file.is_relative_to(path)}
            folders = {folder for folder in folders if not folder.is_relative_to(path)}
        else:
            files[path] = content
    for path in (*folders, *(file.parent for file in files)):
        _below(root, path).mkdir(parents=True, exist_ok=True)
    for path, content in files.items():
        _below(root, path).write_text(content)
        if path.match("/dev/nvidia*"):
            _below(root, path).chmod(0o666)
    for name, mode in spec.modes:
        _below(root, Path(name)).chmod(mode)


def _of_the_driver(spec: MachineSpec) -> dict[Path, str]:
    """Return the content of the driver's files, by absolute path."""
    version = f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {spec.driver_version}  (simulated)\n"
    files = {Path("/proc/driver/nvidia/version"): version}
    for name in ("nvidiactl", "nvidia-uvm", *(f"nvidia{number}" for number in range(len(spec.gpus)))):
        files[Path("/dev", name)] = ""
    for gpu in spec.gpus:
        device = Path("/sys/bus/pci/devices", gpu.pci_bus_id.lower())
        files[device / "vendor"] = "0x10de\n"  # NVIDIA
        files[device / "class"] = "0x030200\n"  # 3D controller
    return files


def _below(root: Path, path: Path) -> Path:
    return root / path.relative_to("/")
