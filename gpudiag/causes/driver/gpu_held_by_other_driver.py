"""another kernel driver holds a GPU, so NVML does not count it

A GPU that is passed to a virtual machine belongs to a kernel driver such as vfio-pci. The other GPUs of the machine are
not affected.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.signs import Signs
from gpudiag.fix import Kind, note, run
from gpudiag.model.report import Severity

CAUSE = Cause(
    title="{pci} is held by {driver}, so NVML does not count it",
    severity=Severity.NOTE,
    fix=(
        note(
            "do nothing if this is meant, as for a virtual machine; otherwise give the GPU back to the driver nvidia:",
            kind=Kind.CHANGE_DRIVER,
        ),
        run("echo {pci} | sudo tee /sys/bus/pci/drivers/{driver}/unbind", kind=Kind.CHANGE_DRIVER),
        run("echo | sudo tee /sys/bus/pci/devices/{pci}/driver_override", kind=Kind.CHANGE_DRIVER),
        run("echo {pci} | sudo tee /sys/bus/pci/drivers/nvidia/bind", kind=Kind.CHANGE_DRIVER),
    ),
    url="https://docs.kernel.org/driver-api/vfio.html",
    finding="host.driver.held",
    row_only=True,
)


def find(signs: Signs) -> Matches:
    for pci, driver in signs.held.items():
        yield Match(evidence=(f"PCI bus: {pci}, driven by {driver}",), figures={"pci": pci, "driver": driver})
