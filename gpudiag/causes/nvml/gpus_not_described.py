"""NVML (libnvidia-ml.so.1) cannot be opened: TensorFlow works without it, but gpudiag cannot describe the GPUs

TensorFlow 2.18 to 2.20 lists GPUs without NVML; 2.21 does not. gpudiag asks NVML which GPUs there are, and how much
of their memory is used.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.signs import Signs
from gpudiag.fix import Kind, note
from gpudiag.model.report import Severity

CAUSE = Cause(
    title="NVML (libnvidia-ml.so.1) cannot be opened: TensorFlow {tensorflow} works without it, but gpudiag cannot "
    "describe the GPUs",
    severity=Severity.WARNING,
    fix=(
        note(
            "install the driver's NVML package (libnvidia-compute on Ubuntu); in a container: -e "
            "NVIDIA_DRIVER_CAPABILITIES=compute,utility",
            kind=Kind.CHANGE_DRIVER,
        ),
    ),
    url="https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html",
    finding="host.driver.gpus_not_told",
    row_only=True,
)


def find(signs: Signs) -> Matches:
    if signs.no_nvml and signs.older_tensorflow:
        yield Match(evidence=(f"NVML: {signs.nvml.error}",), figures={"tensorflow": signs.older_tensorflow})
