"""a GPU is switched off (D3cold) and does not wake up: NVIDIA's driver cannot reach it

The kernel switches an unused GPU off, especially on notebooks, and switches it on at its next use. If that fails,
because of the firmware, of a tool that saves power (powertop, TLP, supergfxctl) or of the driver, the GPU "has fallen
off the bus": NVML does not count it, and its file says D3cold though the driver has just asked for it.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.gpu_state import KernelLog, NoneListed
from gpudiag.causes.shared.machine import WholeDriver
from gpudiag.fix import Kind, configure, reboot, run
from gpudiag.model.diagnosis import Confidence

CAUSE = Cause(
    title="GPU {pci} is switched off (D3cold) and does not wake up: NVIDIA's driver cannot reach it",
    unfit=True,
    fix=(
        configure("echo on | sudo tee /sys/bus/pci/devices/{first}/power/control && nvidia-smi"),
        run(
            "echo 'options nvidia NVreg_DynamicPowerManagement=0x00' | sudo tee /etc/modprobe.d/nvidia-power.conf",
            kind=Kind.CHANGE_DRIVER,
        ),
        reboot("restores a GPU that has fallen off the bus; nothing else does"),
    ),
    url="https://download.nvidia.com/XFree86/Linux-x86_64/560.35.03/README/dynamicpowermanagement.html",
)


def find(whole: WholeDriver, none: NoneListed, kernel: KernelLog) -> Matches:
    if whole.driver.kernel_module is None or whole.container:
        return
    asleep = [pci for pci in whole.nodes.asleep if not whole.counts(pci)]
    if asleep:
        yield Match(
            evidence=(
                *(f"/sys/bus/pci/devices/{pci}/power_state: D3cold; NVML does not count it" for pci in asleep),
                *kernel.last("fallen off the bus", "Xid", "D3cold"),
            ),
            confidence=Confidence.LIKELY,
            figures={"pci": ", ".join(asleep), "first": asleep[0]},
            stage=none.stage,
            gpus=tuple(asleep),
        )
