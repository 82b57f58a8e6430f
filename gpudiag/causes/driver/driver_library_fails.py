"""the CUDA driver library opens but does not work

Error 34 is the stub of the CUDA toolkit, a file for linking that contains no driver. Any other error means that the
library is damaged or does not fit the kernel module.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.signs import Signs
from gpudiag.fix import Kind, note

CAUSE = Cause(
    title="{path} opens but does not work: {error}",
    fix=(
        note(
            "error 34 is the stub of the CUDA toolkit: take its folder out of LD_LIBRARY_PATH; otherwise "
            "reinstall the driver",
            kind=Kind.SET_VARIABLE,
        ),
    ),
    url="https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__TYPES.html",
    finding="host.driver.libcuda_failed",
    row_only=True,
)


def find(signs: Signs) -> Matches:
    path, error = signs.driver.libcuda_path, signs.driver.libcuda_error
    if signs.libcuda_fails:
        yield Match(evidence=(f"{path}: {error}",), figures={"path": path, "error": error})
