"""the CUDA driver library of Windows is found in this distribution, and it fails

The library in /usr/lib/wsl/lib belongs to Windows's driver. It fails after an update of that driver until WSL is
started anew, where driver, Windows and WSL are of very different age, and where the GPU is switched off or failing in
Windows.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Evidence, Matches
from gpudiag.causes.shared.wsl import URL, not_reached
from gpudiag.model import Sure

CAUSE = Cause(
    fix=(
        "wsl --update; wsl --shutdown  # in PowerShell",
        "# then, if it still fails, install the newest driver from https://www.nvidia.com/drivers in Windows",
    ),
    url=URL,
)


def find(evidence: Evidence) -> Matches:
    yield from not_reached("wsl_driver_fails", Sure.LIKELY, evidence)
