"""{gpus} GPUs stand still when they exchange data, and the IOMMU is on between them

GPUs write directly into each other's memory over PCI Express. An IOMMU that translates addresses, or PCI access
control (ACS), sends that traffic up to the processor, where on many machines it stalls or is corrupted: training
stops at the first all-reduce with all GPUs at 100 %, or gives NaN. Nothing is said. GPUs that are joined by NVLink,
or a machine that does this right, are not concerned, so the IOMMU alone is no fault.
"""

from __future__ import annotations

from gpudiag import model
from gpudiag.cause import Cause, Evidence, Match, Matches
from gpudiag.causes.shared.multi_gpu import NCCL, finding_here
from gpudiag.hostfacts import Unknown
from gpudiag.knowledge.messages.collectives import GPUS_EXCHANGE
from gpudiag.log import Log
from gpudiag.model import Severity, Sure
from gpudiag.scope import gpus_in_scope

CAUSE = Cause(
    severity=Severity.WARNING,
    fix=(
        "export NCCL_P2P_DISABLE=1   # to confirm: slower, and it runs",
        "# boot with iommu=pt or {off}: GRUB_CMDLINE_LINUX in /etc/default/grub, sudo update-grub, reboot",
        "sudo lspci -vvv | grep ACSCtl  # should show SrcValid-: switch ACS off in the firmware",
    ),
    url=NCCL + "#pci-access-control-services-acs",
    views=("host.collectives.iommu_translates",),
)
_LAST_LINES = 3


def find(evidence: Evidence) -> Matches:
    here = finding_here(evidence, "iommu_translates")
    gpus = len(gpus_in_scope(evidence.facts))
    stalled = next(
        (
            f"{row.probe} gave no result with {len(row.devices)} GPUs: {crash.detail}"
            for row in evidence.rows
            if row.area == "distribution"
            and len(row.devices) > 1
            and (crash := row.crash) is not None
            and crash.cause is model.Cause.TIMEOUT
        ),
        None,
    )
    last = [line.strip() for line in evidence.lines if line.strip()][-_LAST_LINES:]
    ends = next((f"the log ends with: {line}" for line in last if Log((line,)).first(GPUS_EXCHANGE)), None)
    if here and (stalled or ends):
        nodes = evidence.facts.device_nodes
        of_amd = not isinstance(nodes, Unknown) and any(name.startswith("ivhd") for name in nodes.iommus)
        yield Match(
            evidence=(stalled or ends or "", here.message),
            sure=Sure.LIKELY if stalled else Sure.POSSIBLE,
            figures={"gpus": gpus, "off": "amd_iommu=off" if of_amd else "intel_iommu=off"},
        )
