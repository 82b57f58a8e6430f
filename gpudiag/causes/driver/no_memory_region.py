"""NVIDIA's driver refuses a GPU: the firmware gave it no address space (BAR)

A GPU's memory is seen through regions of addresses (BAR), of up to as many GiB as the GPU has memory. If the firmware
has no room for them below 4 GiB and may not go above, or if a virtual machine has too small a window, the kernel leaves
a region without an address. NVIDIA's module then says "This PCI I/O region assigned to your NVIDIA device is invalid:
BAR1 is 0M", and NVML counts no GPU.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.gpu_state import KernelLog, NoneListed
from gpudiag.causes.shared.machine import WholeDriver
from gpudiag.fix import Kind, boot_with, note
from gpudiag.model.diagnosis import Stage

CAUSE = Cause(
    title="NVIDIA's driver refuses GPU {pci}: the firmware gave it no address space (BAR)",
    unfit=True,
    fix=(
        note(
            'switch "Above 4G Decoding" on and "CSM" off in the firmware (BIOS), and update the firmware',
            kind=Kind.CHANGE_DRIVER,
        ),
        note(
            "use UEFI and a 64-bit window in a virtual machine (VMware: "
            "pciPassthru.use64bitMMIO=TRUE; QEMU: machine q35)",
            kind=Kind.CHANGE_DRIVER,
        ),
        boot_with("pci=realloc", "then reboot: lets the kernel move the regions"),
    ),
    url="https://download.nvidia.com/XFree86/Linux-x86_64/560.35.03/README/commonproblems.html",
)


def find(whole: WholeDriver, none: NoneListed | None, kernel: KernelLog) -> Matches:
    if whole.container:
        return
    without = [pci for pci in whole.nodes.without_memory_region if not whole.counts(pci)]
    if without:
        yield Match(
            evidence=(
                *(f"/sys/bus/pci/devices/{pci}/resource: a region begins at address 0" for pci in without),
                *kernel.last("I/O region", "BAR", "misconfigured"),
            ),
            figures={"pci": ", ".join(without)},
            stage=none.stage if none else Stage.CONFIGURATION,
            gpus=tuple(without),
        )
