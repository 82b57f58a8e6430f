"""this container's image contains its own driver, of another version than the host's kernel module

The container runtime mounts the host's driver libraries into each container, of the very version of the host's kernel
module. Where a driver is installed in the image, often as a dependency of another package, its libraries are found
first, and fit the host only as long as nobody upgrades it. A library that no mount brings in is the image's. Nothing
has to be done on the host.
"""

from __future__ import annotations

from pathlib import PurePath
from shlex import quote

from gpudiag.cause import Cause, Matches
from gpudiag.causes.shared.driver import TwoVersions
from gpudiag.causes.shared.refusals import names, sandbox_of
from gpudiag.fix import Action, Kind, Role, Where, fill_in, run, run_container

_RUNFILE = "NVIDIA-Linux-x86_64-{module}.run"
CAUSE = Cause(
    title="this container's image contains its own driver ({library}), but the host runs kernel module {module}",
    fix=(
        run("RUN apt-get purge -y {packages}", "put it into the Dockerfile", kind=Kind.REMOVE, where=Where.IMAGE),
        run_container("--gpus all", note="brings the host's libraries"),
        run(
            f"curl -fO https://us.download.nvidia.com/XFree86/Linux-x86_64/{{module}}/{_RUNFILE} && "
            f"sudo sh {_RUNFILE} --no-kernel-module",
            "installs the libraries of the host's module here",
            kind=Kind.INSTALL_AS_ROOT,
            role=Role.ALTERNATIVE,
        ),
    ),
    url="https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/troubleshooting.html",
    finding="host.driver.version_mismatch",
)


def find(two: TwoVersions) -> Matches:
    if two.in_image:
        yield two.match(_fix(two))


def _fix(two: TwoVersions) -> tuple[Action, ...]:
    sandbox, (_, give, install) = sandbox_of(two.facts), CAUSE.fix
    libcuda = PurePath(two.driver.libcuda_path or "libcuda.so.1")
    files = f"*.so.{two.library}" if two.library in libcuda.name else f"{libcuda.name}*"
    packages = " ".join(two.driver.packages)
    remove = f"find {quote(str(libcuda.parent))} -name {quote(files)} -delete"
    remove = f"apt-get purge -y {packages}" if packages else remove
    purge = run(f"RUN {remove}", "put it into the Dockerfile", kind=Kind.REMOVE, where=Where.IMAGE)
    if sandbox is None or sandbox.name == "docker":
        return (purge, give)
    give = fill_in(sandbox.give, names(two.facts)).replaced(note="then: brings the host's libraries")
    if not sandbox.is_kept:
        return (purge, give)
    return (run(f"sudo {remove}", "in this container", kind=Kind.REMOVE), give, install)
