"""the kernel still runs NVIDIA's module {module}, but the driver's libraries are {libraries}

An upgrade of the driver's packages, most often an unattended one in the night, replaces the libraries at once and the
kernel module at the next start. Until then nvidia-smi says "Driver/library version mismatch", cuInit fails with
CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, and TensorFlow lists no GPU. Programs that started before the upgrade go on. In a
container, it is the host that has to start again.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Matches
from gpudiag.causes.shared.driver import TwoVersions
from gpudiag.fix import Kind, Role, note, reboot, run

CAUSE = Cause(
    unfit=True,
    fix=(
        reboot(),
        run(
            "sudo rmmod nvidia_drm nvidia_modeset nvidia_uvm nvidia; sudo modprobe nvidia",
            "while no GPU is in use",
            kind=Kind.RELOAD_DRIVER,
            role=Role.ALTERNATIVE,
        ),
        note(
            "so that it does not come again, keep unattended upgrades from the driver's packages", kind=Kind.CONFIGURE
        ),
    ),
    url="https://docs.nvidia.com/deploy/cuda-compatibility/",
    finding="host.driver.version_mismatch",
)


def find(two: TwoVersions) -> Matches:
    if not two.in_image:
        yield two.match((*CAUSE.fix[:2], two.hold or CAUSE.fix[2]))
