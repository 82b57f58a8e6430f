"""the driver's libraries and its kernel module are of different versions

An upgrade of the driver's packages, most often an unattended one in the night, replaces the libraries at once and the
kernel module at the next start. Until then nvidia-smi says "Driver/library version mismatch", cuInit fails with
CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, and TensorFlow lists no GPU. Programs that started before the upgrade go on. In a
container the image has the libraries of another driver. If they are older than the module, the container was created
before the upgrade, or by a CDI specification that was written before it: a new container gets those of the host. If
they are newer, the host has not started again since the upgrade. An upgrade that has not come to its end (packages that
are not configured, or of two releases, a module that DKMS has not built again) has to be completed first: the next
start would load the same module.
"""

from __future__ import annotations

import re

from gpudiag.cause import Cause, Match, Matches, Program
from gpudiag.causes.shared.driver import TwoVersions
from gpudiag.causes.shared.refusals import sandbox_of
from gpudiag.fix import Kind, Role, note, reboot, run
from gpudiag.knowledge.log import recognised
from gpudiag.knowledge.log_lines import text
from gpudiag.knowledge.message import Event
from gpudiag.knowledge.messages.programs_and_drivers import COMPAT_REFUSED, NVML_LIBRARY_VERSION, TWO_VERSIONS
from gpudiag.knowledge.messages.runtime import DIAGNOSTICS
from gpudiag.knowledge.origin import Origin

CAUSE = Cause(
    title="the driver's libraries and its kernel module are of different versions: {versions}",
    unfit=True,
    fix=(
        reboot(),
        run(
            "sudo rmmod nvidia_drm nvidia_modeset nvidia_uvm nvidia; sudo modprobe nvidia",
            "if no GPU is in use",
            kind=Kind.RELOAD_DRIVER,
            role=Role.ALTERNATIVE,
        ),
        note("to prevent it, exclude the driver's packages from unattended upgrades", kind=Kind.CONFIGURE),
        note(
            "remove the driver's libraries (libnvidia-*, libcuda1, nvidia-utils) from a container's "
            "image: the toolkit brings the host's. Then create the container again",
            kind=Kind.REMOVE,
        ),
    ),
    url="https://docs.nvidia.com/deploy/cuda-compatibility/",
    finding="host.driver.version_mismatch",
    needs_gpu=False,
)
_BOTH = ("library", "module")
_VERSION = re.compile(r"\d{3}(?:\.\d{1,3}){1,2}(?![\w.])")


def find(two: TwoVersions) -> Matches:
    sandbox = sandbox_of(two.facts)
    if two.in_image:
        return
    if sandbox is not None and sandbox.renew and two.library_is_older is not False:
        otherwise = None if two.library_is_older else reboot("if nvidia-smi fails on the host, too")
        yield two.match((*sandbox.renew, otherwise))
    elif two.half_done:
        yield two.match((*two.completed, reboot("then: it loads the module of that release")))
    else:
        yield two.match((*CAUSE.fix[:2], two.hold or CAUSE.fix[2]))


def find_in_log(program: Program, origin: Origin) -> Matches:
    said = program.all(TWO_VERSIONS) or _reported(program)
    if not said:
        return
    library = next((event["library"] for event in said if event["library"]), "")
    nvml = program.first(NVML_LIBRARY_VERSION)
    library = library or (nvml["version"] if nvml else "")
    module = next((event["module"] for event in said if event["module"]), "")
    named = [f"library {library}"] if library else []
    named += [f"kernel module {module}"] if module else []
    restart, reload, _, of_image = CAUSE.fix
    yield Match(
        program.said(TWO_VERSIONS, NVML_LIBRARY_VERSION) or tuple(text(event.line) for event in said),
        figures={"versions": ", ".join(named) or "the log does not say which"},
        fix=(of_image, restart, reload) if origin.container else (restart, reload, of_image),
        # A program that starts between the upgrade and the reboot ends in the error of a refused cuda-compat, too.
        explains=(event for refused in program.all(COMPAT_REFUSED) for event in recognised(refused.line)),
        unfit=False,  # the log may be of another machine, or from before the reboot
    )


def _reported(program: Program) -> list[Event]:
    """Return the last two lines in which TensorFlow logs the versions, if they differ; old releases compare nothing."""
    last = [[event for event in program.all(DIAGNOSTICS) if _VERSION.fullmatch(event[name])][-1:] for name in _BOTH]
    versions = {_numbers(event[name]) for name, found in zip(_BOTH, last, strict=True) for event in found}
    return [event for found in last for event in found] if len(versions) == len(_BOTH) else []


def _numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, the same for 367.48 and 367.48.0."""
    found = [int(part) for part in version.split(".")]
    return (*found, 0)[:3]
