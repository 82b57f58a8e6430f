"""prime-select has switched the NVIDIA GPU off in favour of the integrated one

On notebooks with two GPUs Ubuntu's prime-select decides which is used. In its profile "intel" NVIDIA's modules are
not loaded, to save power; the GPU stays on the PCI bus, and CUDA sees none. In the profile "on-demand" the desktop
runs on the integrated GPU and CUDA on NVIDIA's.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Matches
from gpudiag.causes.shared.kernel_module import InstalledDriver
from gpudiag.fix import configure, reboot

CAUSE = Cause(
    title="prime-select has switched the NVIDIA GPU {pci} off in favour of the integrated one",
    fix=(configure("sudo prime-select on-demand"), reboot()),
    url="https://documentation.ubuntu.com/server/how-to/graphics/install-nvidia-drivers/",
    views=("host.driver.no_module",),
)


def find(gpu: InstalledDriver) -> Matches:
    if gpu.driver.prime == "intel" and not gpu.nouveau:
        yield gpu.match("/etc/prime-discrete: intel")
