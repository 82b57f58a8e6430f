"""NVIDIA's driver is not installed, though a GPU is in this machine

The CUDA libraries that pip installs are not the driver. The driver is the kernel module and libcuda.so.1, and it
comes from the distribution or from NVIDIA's installer. Without it cuInit fails with "UNKNOWN ERROR (303)". "Could not
find cuda drivers" in TensorFlow's log does not mean this: it means that the CUDA runtime library is not found.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Matches
from gpudiag.causes.shared.kernel_module import GpuWithoutModule
from gpudiag.causes.shared.machine import INSTALLATION, install_command
from gpudiag.fix import Kind, nvidia_smi, reboot, run

CAUSE = Cause(
    title="NVIDIA's driver is not installed, though GPU {pci} is in this machine",
    fix=(
        run("sudo ubuntu-drivers install", kind=Kind.CHANGE_DRIVER),
        reboot(),
        nvidia_smi("must list the GPU"),
    ),
    url=INSTALLATION,
    views=("host.driver.no_module",),
)


def find(gpu: GpuWithoutModule) -> Matches:
    if gpu.driver.libcuda_path is None:
        yield gpu.match(
            fix=(
                install_command(gpu.facts),
                *CAUSE.fix[1:],
            )
        )
