"""a GPU is reserved by another kernel driver, for example for a virtual machine

A GPU that is passed through to a virtual machine is bound to vfio-pci (or pci-stub, xen-pciback) on the host. NVIDIA's
driver on the host does not see it then, and cuInit says that there is no device.
"""

from __future__ import annotations

from dataclasses import replace

from gpudiag.cause import Cause, Matches
from gpudiag.causes.shared.kernel_module import KeptGpu, ModuleSettings, shown
from gpudiag.fix import Kind, fill_in, note, run

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


def find(gpu: KeptGpu, settings: ModuleSettings) -> Matches:
    match = gpu.match()
    nodes = gpu.nodes
    written = tuple(
        dict.fromkeys(
            setting for pci in nodes.pci_gpus for setting in settings.giving(pci, nodes.models.get(pci, "unknown"))
        )
    )
    lasting = (note("keep it for this machine after the next start, too:"), *settings.without(written))
    same = (
        len(nodes.pci_gpus) > 1
        and len(set(nodes.models.values())) == 1
        and any("ids=" in line.text for line in written)
    )
    yield replace(
        match,
        evidence=(*match.evidence, *shown(written)),
        fix=(
            *(fill_in(action, match.figures) for action in CAUSE.fix),
            *((*lasting, settings.boot_image) if written else ()),
            note("ids= takes every GPU of one model: sudo driverctl set-override ADDRESS vfio-pci takes one")
            if same
            else None,
        ),
    )
