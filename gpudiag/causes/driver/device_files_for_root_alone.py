"""only root may open NVIDIA's device files

The driver makes its device files open to everybody, unless its module has been given other permissions
(NVreg_DeviceFileMode, NVreg_DeviceFileGID), or a udev rule or a script has changed them.
"""

from __future__ import annotations

import stat

from gpudiag.cause import Cause, Matches
from gpudiag.causes.shared.device_files import DRIVER_DOCUMENT
from gpudiag.causes.shared.refusals import Refusals, Refuser
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


def find(files: Refusals) -> Matches:
    if shut := files.by(Refuser.PERMISSIONS):
        decimal = next((number for refusal in shut if (number := _read_as_decimal(refusal.node.mode))), None)
        seen = (
            (f"NVreg_DeviceFileMode={decimal} is a decimal number, without the 0 of an octal one",) if decimal else ()
        )
        yield files.match(shut, (), *files.who_asks, *seen)


def _read_as_decimal(mode: str) -> int | None:
    """Return 666 or 660 if the permissions are that number taken for a decimal one: 666 is 01232, ``c-w--wx-wT``."""
    return next((number for number in (666, 660) if stat.filemode(stat.S_IFCHR | number) == mode), None)
