"""NVIDIA's kernel module is not loaded, though its driver is installed and a GPU is in this machine

The libraries of the driver are there, and the kernel does not run its module: the machine was not restarted after the
installation, the module does not fit the kernel, the driver does not support this GPU, or a file in /etc/modprobe.d
forbids the module. modprobe, and the kernel's log after it, say which.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Matches
from gpudiag.causes.shared.kernel_module import GpuWithoutModule
from gpudiag.causes.shared.machine import INSTALLATION
from gpudiag.fix import Kind, check, run

CAUSE = Cause(
    title="NVIDIA's kernel module is not loaded, though its driver is installed and GPU {pci} is in this machine",
    fix=(
        run("sudo modprobe nvidia", kind=Kind.RELOAD_DRIVER),
        check("sudo dmesg | grep -i -e nvrm -e nvidia", "if that fails"),
        check("grep -rn nvidia /etc/modprobe.d", "look for a line 'blacklist nvidia': it forbids the module"),
    ),
    url=INSTALLATION,
    views=("host.driver.no_module",),
    symptom=True,
    unless={
        "module_refused_by_secure_boot": "modprobe cannot load what the kernel refuses",
    },
)


def find(gpu: GpuWithoutModule) -> Matches:
    yield gpu.match()
