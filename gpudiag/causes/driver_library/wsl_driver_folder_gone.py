"""Windows has NVIDIA's driver, and /usr/lib/wsl/lib of this distribution lacks libcuda.so.1

WSL 2 shows the libraries of Windows's driver in /usr/lib/wsl/lib when it starts. They are missing after an update of
the driver until WSL is started anew, with a driver older than 470, with an old WSL, or where somebody wrote into that
folder. There is no /dev/nvidia0 under WSL: that is as it should be.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Evidence, Matches
from gpudiag.causes.shared.wsl import URL, not_reached
from gpudiag.model import Sure

CAUSE = Cause(
    fix=(
        "wsl --update; wsl --shutdown  # in PowerShell",
        "# then, if it is still missing, install the newest driver from https://www.nvidia.com/drivers in Windows",
    ),
    url=URL,
    views=("host.driver.no_libcuda",),
)


def find(evidence: Evidence) -> Matches:
    yield from not_reached("wsl_driver_folder_gone", Sure.PROVED, evidence)
