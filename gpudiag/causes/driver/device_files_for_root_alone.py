"""only root may open NVIDIA's device files

The driver makes its device files open to everybody, unless its module has been given other permissions
(NVreg_DeviceFileMode, NVreg_DeviceFileGID), or a udev rule or a script has changed them.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Matches
from gpudiag.causes.shared.device_files import DRIVER_DOCUMENT, NoAccess
from gpudiag.fix import Kind, check, configure, run

CAUSE = Cause(
    title="only root may open {files}",
    fix=(
        configure("sudo chmod 0666 {files}", "lasts until the next start"),
        check("grep -rn -e NVreg_DeviceFile -e nvidia /etc/modprobe.d /etc/udev/rules.d", "what set it"),
        run(
            "echo 'options nvidia NVreg_DeviceFileMode=0666' | sudo tee /etc/modprobe.d/nvidia-files.conf",
            kind=Kind.CHANGE_DRIVER,
        ),
    ),
    url=f"{DRIVER_DOCUMENT}faq.html",
    views=(
        "host.driver.no_access",
        "host.driver.nvml_failed",
    ),
)


def find(files: NoAccess) -> Matches:
    if (shut := files.by_their_mode) and not files.by_their_group:
        yield files.match(shut)
