"""the CUDA driver library cannot be opened

libcuda.so.1 belongs to the driver and comes with it, in the version of the kernel module. In a container the NVIDIA
Container Toolkit brings it from the host.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.signs import Signs
from gpudiag.fix import Kind, note

CAUSE = Cause(
    title="the CUDA driver library cannot be opened: {error}",
    fix=(
        note(
            "install the driver's libraries, in the version of the kernel module ({module}); in a "
            "container: docker run --gpus all",
            kind=Kind.CHANGE_DRIVER,
        ),
    ),
    url="https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/",
    finding="host.driver.no_libcuda",
    row_only=True,
)


def find(signs: Signs) -> Matches:
    if signs.no_libcuda:
        error = signs.driver.libcuda_error or ""
        yield Match(evidence=(error,), figures={"error": error, "module": signs.driver.kernel_module or "not known"})
