"""a Linux driver is installed in this WSL distribution and is used instead of Windows' driver

Under WSL the driver is the one of Windows, and its libraries appear in /usr/lib/wsl/lib. The packages cuda,
cuda-drivers and nvidia-driver bring a driver for Linux that has no kernel module there, and its libcuda.so.1 is found
first: cuInit then fails. In WSL install the package cuda-toolkit alone, or the CUDA libraries that pip brings with
TensorFlow.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Matches
from gpudiag.causes.shared.wsl import URL, Wsl
from gpudiag.fix import Kind, configure, export, run
from gpudiag.model.diagnosis import Confidence

CAUSE = Cause(
    title="a Linux driver ({library}) is installed in this WSL distribution and is used instead of Windows' driver",
    fix=(
        run("sudo apt purge libnvidia-compute-535 && sudo apt autoremove", kind=Kind.REMOVE),
        configure("sudo ldconfig"),
        export("LD_LIBRARY_PATH", "{path}", "until then"),
    ),
    url=URL,
    views=("host.driver.no_libcuda",),
)


def find(wsl: Wsl) -> Matches:
    if wsl.has_folder and not wsl.uses_folder and (wsl.driver.packages or wsl.driver.libcuda_path is not None):
        yield wsl.match(
            Confidence.PROVED,
            tried=CAUSE.fix[2],
            fix=(
                wsl.remove,
                *CAUSE.fix[1:],
            ),
        )
