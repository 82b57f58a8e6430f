"""the driver's library and its kernel module are of different versions where the program ran: {versions}

An upgrade of the driver's packages, most often an unattended one, replaces the libraries at once and the kernel
module at the next start. In a container the image has the libraries of another driver, or the container
was started before the host's driver was upgraded.
"""

from __future__ import annotations

import re

from gpudiag.cause import Cause, Match, Matches, Program
from gpudiag.fix import Kind, Role, note, reboot, run
from gpudiag.knowledge.log_lines import text
from gpudiag.knowledge.message import Event
from gpudiag.knowledge.messages.programs_and_drivers import NVML_LIBRARY_VERSION, TWO_VERSIONS
from gpudiag.knowledge.messages.runtime import DIAGNOSTICS
from gpudiag.knowledge.origin import Origin

CAUSE = Cause(
    fix=(
        reboot(),
        run(
            "sudo rmmod nvidia_drm nvidia_modeset nvidia_uvm nvidia; sudo modprobe nvidia",
            "if no program uses a GPU",
            kind=Kind.RELOAD_DRIVER,
            role=Role.ALTERNATIVE,
        ),
        note(
            "in a container: remove the driver's libraries from the image, and create the container again",
            kind=Kind.REMOVE,
        ),
    ),
    url="https://docs.nvidia.com/deploy/cuda-compatibility/",
    needs_gpu=False,
    unless={
        "driver_upgraded_without_reboot": "the facts say the same, with both versions",
    },
)
_BOTH = ("library", "module")
_REBOOT = reboot()
_RELOAD = run(
    "sudo rmmod nvidia_drm nvidia_modeset nvidia_uvm nvidia; sudo modprobe nvidia",
    "while no GPU is in use",
    kind=Kind.RELOAD_DRIVER,
    role=Role.ALTERNATIVE,
)
_IMAGE = note(
    "in a container: remove the driver's libraries (libnvidia-*, libcuda1, nvidia-utils) from the "
    "image; the toolkit "
    "brings the host's. Then create the container again",
    kind=Kind.REMOVE,
)


_VERSION = re.compile(r"\d{3}(?:\.\d{1,3}){1,2}(?![\w.])")


def find(program: Program, origin: Origin) -> Matches:
    said = program.all(TWO_VERSIONS) or _reported(program)
    if not said:
        return
    library = next((event["library"] for event in said if event["library"]), "")
    nvml = program.first(NVML_LIBRARY_VERSION)
    library = library or (nvml["version"] if nvml else "")
    module = next((event["module"] for event in said if event["module"]), "")
    named = [f"library {library}"] if library else []
    named += [f"kernel module {module}"] if module else []
    order = (_IMAGE, _REBOOT, _RELOAD) if origin.container else (_REBOOT, _RELOAD, _IMAGE)
    yield Match(
        program.said(TWO_VERSIONS, NVML_LIBRARY_VERSION) or tuple(text(event.line) for event in said),
        figures={"versions": ", ".join(named) or "the log does not say which"},
        fix=(order[0], order[1], order[2]),
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
