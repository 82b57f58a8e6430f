"""only root may open {files}

The driver makes its device files open to everybody, unless its module has been given other permissions
(NVreg_DeviceFileMode, NVreg_DeviceFileGID), or a udev rule or a script has changed them.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Evidence, Matches
from gpudiag.causes.shared.device_files import DRIVER_DOCUMENT, no_access

CAUSE = Cause(
    fix=(
        "sudo chmod 0666 {files}  # until the next start",
        "grep -rn -e NVreg_DeviceFile -e nvidia /etc/modprobe.d /etc/udev/rules.d  # what set it",
        "echo 'options nvidia NVreg_DeviceFileMode=0666' | sudo tee /etc/modprobe.d/nvidia-files.conf",
    ),
    url=f"{DRIVER_DOCUMENT}faq.html",
    views=(
        "host.driver.no_access",
        "host.driver.nvml_failed",
    ),
)


def find(evidence: Evidence) -> Matches:
    yield from no_access("device_files_for_root_alone", evidence)
