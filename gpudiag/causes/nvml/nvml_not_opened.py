"""NVML (libnvidia-ml.so.1) cannot be opened, though the driver library is here: TensorFlow 2.21 then lists no GPU,
and prints nothing

TensorFlow asks NVML before it lists GPUs, since 2.21. The library belongs to the driver; in a container NVIDIA's
runtime brings it with the capability `utility`.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.signs import Signs

CAUSE = Cause(
    fix=(
        "# install the driver's NVML package (libnvidia-compute on Ubuntu); in a container: -e "
        "NVIDIA_DRIVER_CAPABILITIES=compute,utility",
    ),
    url="https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html",
    needs_gpu=False,
    finding="host.driver.no_nvml",
    row_only=True,
)


def find(signs: Signs) -> Matches:
    if signs.no_nvml and not signs.older_tensorflow:
        yield Match(evidence=(f"NVML: {signs.nvml.error}",))
