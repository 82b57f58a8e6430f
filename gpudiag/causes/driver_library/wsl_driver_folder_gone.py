"""Windows has NVIDIA's driver, but /usr/lib/wsl/lib of this distribution lacks libcuda.so.1

WSL 2 shows the libraries of Windows's driver in /usr/lib/wsl/lib when it starts. They are missing after an update of
the driver until WSL is started again, with a driver older than 470, with an old WSL, or if somebody wrote into that
folder. There is no /dev/nvidia0 under WSL: that is normal.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Matches
from gpudiag.causes.shared.wsl import URL, Wsl
from gpudiag.fix import Kind, note, run
from gpudiag.model.diagnosis import Confidence

CAUSE = Cause(
    fix=(
        run("wsl --update; wsl --shutdown", "in PowerShell", kind=Kind.REBOOT),
        note(
            "then, if it is still missing, install the newest driver from https://www.nvidia.com/drivers in Windows",
            kind=Kind.CHANGE_DRIVER,
        ),
    ),
    url=URL,
    views=("host.driver.no_libcuda",),
)


def find(wsl: Wsl) -> Matches:
    if wsl.has_device and not wsl.has_folder:
        yield wsl.match(Confidence.PROVED)
