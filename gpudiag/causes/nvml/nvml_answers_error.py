"""NVML answers with an error

NVML is the part of the driver that nvidia-smi asks, and TensorFlow since 2.21. "GPU is lost" needs a reset or a
reboot, "Insufficient Permissions" access to the device files.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.signs import Signs
from gpudiag.fix import check

CAUSE = Cause(
    title="NVML answers: {error}",
    fix=(check("nvidia-smi; sudo dmesg | grep -i -e nvrm -e xid", "a lost GPU needs a reset or a reboot"),),
    url="https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceEnumvs.html",
    finding="host.driver.nvml_failed",
    row_only=True,
)


def find(signs: Signs) -> Matches:
    if (error := signs.nvml_fails) and not signs.left_out:
        yield Match(evidence=(f"NVML: {error}",), figures={"error": error})
