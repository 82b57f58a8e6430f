"""NVIDIA's driver runs but does not start a GPU

The kernel's log says why: the GPU is too old or too new for this driver, its firmware does not start, it has too little
power or a bad slot, or it has fallen off the bus. The cause names the first fault that the log has for this GPU. Other
GPUs of the machine may work meanwhile.
"""

from __future__ import annotations

from dataclasses import replace

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.device_files import DRIVER_DOCUMENT, NoDevice
from gpudiag.causes.shared.gpu_state import KernelLog, meaning
from gpudiag.causes.shared.machine import WholeDriver
from gpudiag.fix import Kind, kernel_log, note
from gpudiag.model.diagnosis import Confidence, Stage
from gpudiag.model.facts import TriedFacts
from gpudiag.model.missing import uncounted_gpus, working_brothers
from gpudiag.text import counted

CAUSE = Cause(
    title="NVIDIA's driver {module} does not start GPU {pci}{why}",
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
    views=("host.driver.not_counted",),
)


def find(gpu: NoDevice | None, whole: WholeDriver, tried: TriedFacts | None, kernel: KernelLog) -> Matches:
    reason = kernel.reason(gpu.nodes.pci_gpus) if gpu is not None else None
    certain = reason is not None and reason.is_likely
    silent = gpu is not None and not gpu.nvml.devices and (gpu.nvml.error is None or certain)
    if gpu is not None and gpu.with_all_files and silent and gpu.nodes.pci_gpus:
        found = gpu.match(Confidence.LIKELY)
        opened = (
            [f"open {attempt.path}: {meaning(attempt.error)}" for attempt in tried.opened if attempt.error]
            if tried
            else []
        )
        yield replace(
            found,
            evidence=(*found.evidence, *opened, *(reason.lines if reason else kernel.last("NVRM"))),
            figures={**found.figures, "why": f": {reason.meaning}" if reason else ", and reports no GPU"},
            fix=reason.fix if reason else (),
            confidence=Confidence.LIKELY,
        )
    elif whole.nvml.devices and whole.driver.kernel_module:
        for pci in uncounted_gpus(whole.facts):
            reason = kernel.reason((pci,))
            if reason is not None:
                yield Match(
                    evidence=(f"PCI bus: {pci}; NVML does not count it", *reason.lines),
                    confidence=reason.confidence,
                    figures={
                        "module": whole.driver.kernel_module,
                        "pci": pci,
                        "why": f": {reason.meaning}{_ruled_out(len(working_brothers(whole.facts, pci)))}",
                    },
                    fix=reason.fix,
                    stage=Stage.CONFIGURATION,
                    gpus=(pci,),
                )


def _ruled_out(brothers: int) -> str:
    if not brothers:
        return ""
    of_model = f"{counted(brothers, 'GPU')} of its model {'work' if brothers > 1 else 'works'} with this driver"
    return f"; {of_model}, which is not at fault then"
