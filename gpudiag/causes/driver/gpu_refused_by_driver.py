"""NVIDIA's driver runs but refuses a GPU, and reports no GPU

The kernel's log says why: the GPU is too old for this driver (580 is the last for Maxwell, Pascal and Volta) or too new
for it, the open kernel modules are installed for a GPU older than Turing, the GPU has too little power or a bad slot
("RmInitAdapter failed"), or the firmware gave it no address space.
"""

from __future__ import annotations

from dataclasses import replace

from gpudiag.cause import Cause, Matches
from gpudiag.causes.shared.device_files import DRIVER_DOCUMENT, NoDevice
from gpudiag.causes.shared.gpu_state import KernelLog, meaning
from gpudiag.fix import Kind, kernel_log, note
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.facts import TriedFacts

CAUSE = Cause(
    title="NVIDIA's driver {module} runs but refuses GPU {pci}, and reports no GPU",
    unfit=True,
    fix=(
        kernel_log("the reason"),
        note(
            'if the log says "not supported by open nvidia.ko", install the proprietary module, such '
            "as nvidia-driver-535",
            kind=Kind.CHANGE_DRIVER,
        ),
        note(
            'if the log says "requires legacy driver" or "not supported by the driver", install the '
            "release that it names",
            kind=Kind.CHANGE_DRIVER,
        ),
    ),
    url=f"{DRIVER_DOCUMENT}supportedchips.html",
    symptom=True,
)


def find(gpu: NoDevice, tried: TriedFacts | None, kernel: KernelLog) -> Matches:
    if gpu.with_all_files and not gpu.nvml.devices and gpu.nvml.error is None and gpu.nodes.pci_gpus:
        found = gpu.match(Confidence.LIKELY)
        opened = (
            [f"open {attempt.path}: {meaning(attempt.error)}" for attempt in tried.opened if attempt.error]
            if tried
            else []
        )
        yield replace(found, evidence=(*found.evidence, *opened, *kernel.last("NVRM")))
