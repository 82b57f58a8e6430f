"""Shared by causes: NVIDIA's driver is not installed, or its kernel module not loaded."""

from __future__ import annotations

from collections.abc import Iterator

from gpudiag.cause import Evidence, Match
from gpudiag.causes.shared.machine import (
    HOST_DRIVER,
    container,
    install_command,
    kept_for_others,
    on_the_bus,
    operating_system,
    parts,
    uses_apt,
)
from gpudiag.model import Stage, Sure


def why(evidence: Evidence) -> str:
    """Return the rule that tells why the module is not loaded; "" where it is, or there is no GPU for it."""
    known = parts(evidence)
    if known is None:
        return ""
    driver, nvml, nodes = known
    if kept_for_others(nodes) and not nvml.devices and not container(evidence):
        return "gpu_kept_for_others"
    if not nodes.pci_gpus or not evidence.found(HOST_DRIVER, "no_module"):
        return ""
    if driver.libcuda_path is None:
        return "driver_not_installed"
    if "nouveau" in driver.modules or "nouveau" in nodes.bound.values():
        return "nouveau_in_use"
    if driver.prime == "intel":
        return "integrated_gpu_chosen"
    if driver.module_installed is False:
        return "module_not_built"
    if driver.module_installed and driver.secure_boot:
        return "module_refused_by_secure_boot"
    return "module_not_loaded"


def not_loaded(rule: str, sign: str, sure: Sure, evidence: Evidence) -> Iterator[Match]:
    known = parts(evidence)
    if known is None or why(evidence) != rule:
        return
    driver, _, nodes = known
    name, kernel = operating_system(evidence)
    apt = uses_apt(evidence)
    library = driver.libcuda_path or driver.libcuda_error
    yield Match(
        evidence=(
            on_the_bus(nodes),
            f"NVIDIA's kernel module is {'loaded' if driver.kernel_module else 'not loaded'}; libcuda.so.1: {library}",
            *([sign.format(kernel=kernel)] if sign else []),
        ),
        sure=sure,
        figures={
            "pci": nodes.pci_gpus[0],
            "holder": nodes.bound.get(nodes.pci_gpus[0], ""),
            "kernel": kernel,
            "install": install_command(evidence),
            "initramfs": "sudo update-initramfs -u" if apt else "sudo dracut --force",
            "build": f"sudo apt install linux-headers-{kernel} && sudo dkms autoinstall -k {kernel}"
            if apt
            else f"sudo dnf install kernel-devel-{kernel} && sudo dkms autoinstall -k {kernel}  # or: sudo akmods",
            "key": "/var/lib/shim-signed/mok/MOK.der" if "Ubuntu" in name else "/var/lib/dkms/mok.pub",
        },
        stage=Stage.DRIVER_LIBRARY if driver.libcuda_path is None else Stage.DRIVER,
    )
