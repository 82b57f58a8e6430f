"""only root may open NVIDIA's device files

The driver makes its device files open to everybody, unless its module has been given other permissions
(NVreg_DeviceFileMode, NVreg_DeviceFileGID), or a udev rule or a script has changed them.
"""

from __future__ import annotations

import stat

from gpudiag.cause import Cause, Matches
from gpudiag.causes.shared.device_files import DRIVER_DOCUMENT
from gpudiag.causes.shared.refusals import Refusals, Refuser
from gpudiag.fix import Action, Kind, Where, check, configure, run

CAUSE = Cause(
    title="only root may open {files}{why}",
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
    shut = files.by(Refuser.PERMISSIONS)
    if not shut:
        return
    number = next((number for refusal in shut if (number := _read_as_decimal(refusal.node.mode))), None)
    why = f": NVreg_DeviceFileMode={number} is a decimal number, and {shut[0].node.mode} are its permissions"
    octal = run(
        f"sudo sed -i 's/NVreg_DeviceFileMode={number}/NVreg_DeviceFileMode=0{number}/' /etc/modprobe.d/*.conf",
        "an octal number begins with 0",
        kind=Kind.CHANGE_DRIVER,
    )
    sandbox = files.sandbox if files.sandbox is not None and files.sandbox.is_container else None
    fix: tuple[Action, ...] = (CAUSE.fix[0], octal) if number else ()
    if sandbox is not None:
        on_host = tuple(action.replaced(where=Where.HOST) for action in fix or CAUSE.fix)
        fix = files.actions(sandbox.open or on_host, shut)
    yield files.match(shut, fix, *files.who_asks, why=why if number else "")


def _read_as_decimal(mode: str) -> int | None:
    """Return 666 or 660 if the permissions are that number taken for a decimal one: 666 is 01232, ``-w--wx-wT``."""
    return next((number for number in (666, 660) if stat.filemode(number)[1:] == mode[1:]), None)
