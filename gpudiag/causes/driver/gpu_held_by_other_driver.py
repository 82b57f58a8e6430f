"""a GPU is held by another kernel driver, or excluded by a setting, so NVML does not count it

A GPU that is passed to a virtual machine belongs to a kernel driver such as vfio-pci, and NVIDIA's module leaves alone
what its parameter NVreg_ExcludedGpus names. The other GPUs of the machine are not affected.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.kernel_module import ModuleSettings, shown
from gpudiag.causes.shared.signs import Signs
from gpudiag.fix import Kind, note, run
from gpudiag.model.facts import KernelFacts
from gpudiag.model.report import Severity

CAUSE = Cause(
    title="{pci} is {held}, so NVML does not count it",
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

_EXCLUDES = ("ExcludedGpus", "GpuBlacklist")


def find(signs: Signs, kernel: KernelFacts | None, settings: ModuleSettings) -> Matches:
    for pci, driver in signs.held.items():
        written = settings.giving(pci, signs.nodes.models.get(pci, "unknown"))
        yield Match(
            evidence=(f"PCI bus: {pci}, driven by {driver}", *shown(written)),
            figures={"pci": pci, "driver": driver, "held": f"held by {driver}"},
        )
    for pci in kernel.excluded if kernel else ():
        written = tuple(
            setting for setting in settings.settings if any(f"NVreg_{name}=" in setting.text for name in _EXCLUDES)
        )
        named = [name for name in _EXCLUDES if kernel and kernel.parameters.get(name)]
        yield Match(
            evidence=(f"/proc/driver/nvidia/gpus/{pci}/information: GPU Excluded: Yes", *shown(written)),
            figures={"pci": pci, "driver": "nvidia", "held": f"excluded by NVreg_{(*named, 'ExcludedGpus')[0]}"},
            fix=(
                note("do nothing if this is meant; otherwise take the GPU out of the parameter, and reboot:"),
                *settings.without(written),
            ),
        )
