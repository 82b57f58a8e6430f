"""the kernel drives a GPU with nouveau instead of NVIDIA's module

nouveau, the free driver, cannot run CUDA, and while it holds the GPU NVIDIA's module cannot be loaded. The driver's
packages normally forbid nouveau, and an installation by hand, an old boot image or a kernel update
can leave it in use. cuInit then answers "no CUDA-capable device is detected".
"""

from __future__ import annotations

from dataclasses import replace

from gpudiag.cause import Cause, Matches
from gpudiag.causes.shared.kernel_module import InstalledDriver, ModuleSettings, shown
from gpudiag.causes.shared.machine import INSTALLATION
from gpudiag.fix import Kind, reboot, run

CAUSE = Cause(
    title="the kernel drives GPU {pci} with nouveau instead of NVIDIA's module",
    fix=(
        run("echo 'blacklist nouveau' | sudo tee /etc/modprobe.d/blacklist-nouveau.conf", kind=Kind.CHANGE_DRIVER),
        run("sudo update-initramfs -u", kind=Kind.CHANGE_DRIVER),
        reboot(),
    ),
    url=INSTALLATION,
    views=("host.driver.no_module",),
)


def find(gpu: InstalledDriver, settings: ModuleSettings) -> Matches:
    if not gpu.nouveau:
        return
    written = settings.blacklisting("nouveau") + settings.forbidding("nouveau")
    image = settings.boot_image
    if written:
        image = image.replaced(note=f"nouveau is loaded in spite of {written[0].place}: the boot image can be older")
    match = gpu.match("nouveau is loaded", fix=(None if written else CAUSE.fix[0], image, CAUSE.fix[2]))
    yield replace(match, evidence=(*match.evidence, *shown(written)))
