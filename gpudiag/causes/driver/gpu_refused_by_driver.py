"""NVIDIA's driver {module} runs and refuses GPU {pci}: it reports no GPU at all

The kernel's log says why: the GPU is too old for this driver (580 is the last for Maxwell, Pascal and Volta) or too
new for it, the open kernel modules are installed for a GPU older than Turing, the GPU has too little power or a bad
slot ("RmInitAdapter failed"), or the firmware gave it no address space.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Matches
from gpudiag.causes.shared.device_files import DRIVER_DOCUMENT, NoDevice
from gpudiag.model import Sure

CAUSE = Cause(
    fix=(
        "sudo dmesg | grep -i -e nvrm -e xid  # the reason",
        '# "not supported by open nvidia.ko": install the proprietary module, such as nvidia-driver-535',
        '# "requires legacy driver", "not supported by the driver": install the release that it names',
    ),
    url=f"{DRIVER_DOCUMENT}supportedchips.html",
)


def find(gpu: NoDevice) -> Matches:
    if gpu.with_all_files and not gpu.nvml.devices and gpu.nvml.error is None and gpu.nodes.pci_gpus:
        yield gpu.match(Sure.LIKELY)
