"""the GPUs hang when they exchange data; the IOMMU between them is on

GPUs write directly into each other's memory over PCI Express. An IOMMU that translates addresses, or PCI access control
(ACS), sends that traffic up to the processor, where on many machines it stalls or is corrupted: training stops at the
first all-reduce with all GPUs at 100 %, or gives NaN. No error is printed. GPUs that are joined by NVLink, or a machine
that does this right, are not affected, so the IOMMU alone is not a fault.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches, Program, Rows
from gpudiag.causes.shared.multi_gpu import NCCL, SeveralGpus
from gpudiag.fix import boot_with, check, export
from gpudiag.knowledge.log_lines import Log
from gpudiag.knowledge.messages.collectives import GPUS_EXCHANGE
from gpudiag.model import report
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.report import Severity

CAUSE = Cause(
    title="{gpus} GPUs hang when they exchange data; the IOMMU between them is on",
    severity=Severity.WARNING,
    fix=(
        export("NCCL_P2P_DISABLE", "1", "confirms the cause if the program then runs, more slowly"),
        boot_with("iommu=pt", "then reboot; or with {off}"),
        check("sudo lspci -vvv | grep ACSCtl", "must show SrcValid-; if not, switch ACS off in the firmware"),
    ),
    url=NCCL + "#pci-access-control-services-acs",
    views=("host.collectives.iommu_translates",),
)
_LAST_LINES = 3


def find(several: SeveralGpus, rows: Rows, program: Program) -> Matches:
    stalled = next(
        (
            f"{row.probe} gave no result with {len(row.devices)} GPUs: {crash.detail}"
            for row in rows
            if row.area == "distribution"
            and len(row.devices) > 1
            and (crash := row.crash) is not None
            and crash.cause is report.NoReading.TIMEOUT
        ),
        None,
    )
    last = [line.strip() for line in program.lines if line.strip()][-_LAST_LINES:]
    ends = next((f"the log ends with: {line}" for line in last if Log((line,)).first(GPUS_EXCHANGE)), None)
    if several.translation and (stalled or ends):
        of_amd = any(name.startswith("ivhd") for name in several.nodes.iommus)
        yield Match(
            evidence=(stalled or ends or "", f"the IOMMU translates addresses between the GPUs: {several.translation}"),
            confidence=Confidence.LIKELY if stalled else Confidence.POSSIBLE,
            figures={"gpus": len(several.gpus), "off": "amd_iommu=off" if of_amd else "intel_iommu=off"},
        )
