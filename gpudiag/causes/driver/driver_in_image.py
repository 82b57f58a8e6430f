"""this container's image contains its own driver, of another version than the host's kernel module

The container runtime mounts the host's driver libraries into each container, of the very version of the host's kernel
module. Where packages of the driver are installed in the image, often as a dependency of another one, their libraries
are found first, and fit the host only as long as nobody upgrades it.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Matches
from gpudiag.causes.shared.driver import TwoVersions
from gpudiag.fix import Kind, Where, run, run_container

CAUSE = Cause(
    title="this container's image contains its own driver ({library}), but the host runs kernel module {module}",
    fix=(
        run("RUN apt-get purge -y {packages}", "put it into the Dockerfile", kind=Kind.REMOVE, where=Where.IMAGE),
        run_container("--gpus all", note="brings the host's libraries"),
    ),
    url="https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/troubleshooting.html",
    finding="host.driver.version_mismatch",
)


def find(two: TwoVersions) -> Matches:
    if two.in_image:
        yield two.match()
