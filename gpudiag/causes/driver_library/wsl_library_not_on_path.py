"""Windows's CUDA driver library is in /usr/lib/wsl/lib, where the loader of this distribution does not look

Under WSL 2 the driver is the one of Windows, and its libraries appear in /usr/lib/wsl/lib. A file of /etc/ld.so.conf.d
names that folder; if it was lost (a distribution that was imported or upgraded, a Docker image turned into one,
automount off), libcuda.so.1 is not found. There is no /dev/nvidia0 under WSL: that is normal. Do not install a Linux
driver.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Matches
from gpudiag.causes.shared.wsl import FOLDER, URL, Wsl
from gpudiag.fix import Role, export, run
from gpudiag.model.diagnosis import Confidence

CAUSE = Cause(
    fix=(
        export("LD_LIBRARY_PATH", "{path}"),
        run(
            f"echo {FOLDER} | sudo tee /etc/ld.so.conf.d/ld.wsl.conf && sudo ldconfig",
            "for good",
            role=Role.ALTERNATIVE,
        ),
    ),
    url=URL,
    views=("host.driver.no_libcuda",),
    unless={
        "linux_driver_in_wsl": "the Linux driver in WSL has put its own library first",
    },
)


def find(wsl: Wsl) -> Matches:
    if wsl.has_folder and wsl.driver.libcuda_path is None:
        yield wsl.match(Confidence.PROVED, tried=CAUSE.fix[0])
