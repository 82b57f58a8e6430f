"""a GPU is reserved by another kernel driver, for example for a virtual machine

A GPU that is passed through to a virtual machine is bound to vfio-pci (or pci-stub, xen-pciback) on the host. NVIDIA's
driver on the host does not see it then, and cuInit says that there is no device.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Matches
from gpudiag.causes.shared.kernel_module import KeptGpu
from gpudiag.fix import Kind, note, run

CAUSE = Cause(
    title="GPU {pci} is reserved by the kernel driver {holder}, for example for a virtual machine",
    fix=(
        note(
            "run TensorFlow in the virtual machine that has the GPU, or give the GPU back to this one:",
            kind=Kind.CHANGE_DRIVER,
        ),
        run("echo {pci} | sudo tee /sys/bus/pci/drivers/{holder}/unbind", kind=Kind.CHANGE_DRIVER),
        run("echo | sudo tee /sys/bus/pci/devices/{pci}/driver_override", kind=Kind.CHANGE_DRIVER),
        run("echo {pci} | sudo tee /sys/bus/pci/drivers/nvidia/bind", kind=Kind.CHANGE_DRIVER),
    ),
    url="https://docs.kernel.org/driver-api/vfio.html",
    views=(
        "host.driver.no_module",
        "host.driver.held",
    ),
)


def find(gpu: KeptGpu) -> Matches:
    yield gpu.match()
