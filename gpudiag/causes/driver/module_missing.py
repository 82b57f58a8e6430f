"""NVIDIA's kernel module is not loaded, though a GPU is on the PCI bus

Without its kernel module the driver reaches no GPU. Other causes say why it is not loaded: it is not installed, another
driver has the GPU, Secure Boot refuses it, or it was not built for this kernel.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.signs import Signs
from gpudiag.fix import Kind, check, run

CAUSE = Cause(
    title="NVIDIA's kernel module is not loaded, though GPU {pci} is on the PCI bus",
    fix=(
        run(
            "sudo modprobe nvidia",
            "if the driver is installed; if not, install it, and reboot",
            kind=Kind.RELOAD_DRIVER,
        ),
        check("sudo dmesg | grep -i -e nvrm -e nvidia -e nouveau"),
    ),
    url="https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/",
    finding="host.driver.no_module",
    row_only=True,
)


def find(signs: Signs) -> Matches:
    if signs.no_module:
        pci = " ".join(signs.nodes.pci_gpus)
        yield Match(evidence=(f"PCI bus: {pci}; NVML: {signs.nvml.error}",), figures={"pci": pci})
