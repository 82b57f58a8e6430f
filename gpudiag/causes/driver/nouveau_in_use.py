"""the kernel drives GPU {pci} with nouveau instead of NVIDIA's module

nouveau, the free driver, cannot run CUDA, and while it holds the GPU NVIDIA's module cannot be loaded. The driver's
packages normally forbid nouveau, and an installation by hand, a boot image that was not made anew or a kernel update
can leave it in use. cuInit then answers "no CUDA-capable device is detected".
"""

from __future__ import annotations

from gpudiag.cause import Cause, Evidence, Matches
from gpudiag.causes.shared.kernel_module import not_loaded
from gpudiag.causes.shared.machine import INSTALLATION
from gpudiag.model import Sure

CAUSE = Cause(
    fix=(
        "echo 'blacklist nouveau' | sudo tee /etc/modprobe.d/blacklist-nouveau.conf",
        "{initramfs}",
        "sudo reboot",
    ),
    url=INSTALLATION,
    shown={"initramfs": "sudo update-initramfs -u"},
    views=("host.driver.no_module",),
)


def find(evidence: Evidence) -> Matches:
    yield from not_loaded("nouveau_in_use", "nouveau is loaded", Sure.PROVED, evidence)
