"""the number of GPUs is unknown

gpudiag counts GPUs by NVML, the part of the driver that nvidia-smi asks. NVML did not answer, or answered with an
error.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.fix import nvidia_smi
from gpudiag.model.facts import NVML_ABSENT, Facts, Unknown
from gpudiag.model.missing import lost_gpus
from gpudiag.model.report import Severity

CAUSE = Cause(
    title="the number of GPUs is unknown: {reason}",
    severity=Severity.WARNING,
    fix=(nvidia_smi("must work first; see the findings of host.driver"),),
    url="https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceEnumvs.html",
    finding="host.gpus.not_known",
    row_only=True,
)


def find(facts: Facts) -> Matches:
    nvml, reason = facts.nvml, ""
    if isinstance(nvml, Unknown):
        reason = nvml.reason
    elif nvml.error not in NVML_ABSENT and (lost_gpus(facts) or not nvml.undescribed):
        reason = f"NVML answers {nvml.error!r}"
    if reason:
        yield Match(evidence=(reason,), figures={"reason": reason})
