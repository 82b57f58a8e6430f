"""the IOMMU translates addresses between the GPUs

GPUs write directly into each other's memory over PCI Express. An IOMMU that translates addresses sends that traffic
through the processor, and on some machines it stalls there. On others it does no harm. It matters only if training
stops at the first all-reduce, with all GPUs at 100 %.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.multi_gpu import SeveralGpus
from gpudiag.fix import export
from gpudiag.model.report import Severity

CAUSE = Cause(
    title="the IOMMU translates addresses between the GPUs ({shown})",
    severity=Severity.NOTE,
    fix=(
        export("NCCL_P2P_DISABLE", "1", "if training stops at the first all-reduce; permanently: boot with iommu=pt"),
    ),
    url="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html#pci-access-control-services-acs",
    finding="host.collectives.iommu_translates",
    row_only=True,
)


def find(several: SeveralGpus) -> Matches:
    if shown := several.translation:
        yield Match(evidence=(shown,), figures={"shown": shown})
