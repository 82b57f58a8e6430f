"""a GPU is on the PCI bus, but NVML does not report it

The driver could not start that GPU, or is too new or too old for it. The kernel's log says which.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.signs import Signs
from gpudiag.fix import kernel_log
from gpudiag.model.missing import uncounted_gpus
from gpudiag.model.report import Severity

CAUSE = Cause(
    title="GPU {pci} is on the PCI bus, but NVML does not report it",
    severity=Severity.WARNING,
    fix=(kernel_log("shows why; if you can do without this GPU, name the others in CUDA_VISIBLE_DEVICES"),),
    url="https://docs.nvidia.com/deploy/xid-errors/index.html",
    finding="host.driver.not_counted",
    row_only=True,
)


def find(signs: Signs) -> Matches:
    missing = uncounted_gpus(signs.facts)
    if missing and signs.nvml.devices and not signs.no_module:
        pci = " ".join(missing)
        yield Match(evidence=(f"PCI bus: {pci}",), figures={"pci": pci})
