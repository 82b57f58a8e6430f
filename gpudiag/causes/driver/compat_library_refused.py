"""libcuda.so.1 is a forward-compatibility library that the kernel module or the GPU does not accept

The package cuda-compat brings a newer libcuda.so.1 for an older kernel module. It works on data-centre GPUs, with
certain older drivers, and nowhere else: on a GeForce, or with a driver that is newer than the package, cuInit fails.
NVIDIA's images contain it in /usr/local/cuda/compat. CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE says that much by
itself; if several GPUs are there, one that is not supported is enough (CUDA_VISIBLE_DEVICES hides it).
"""

from __future__ import annotations

import re

from gpudiag.cause import Cause, Match, Matches, Program
from gpudiag.causes.shared.driver import COMPAT, not_the_drivers_own
from gpudiag.causes.shared.signs import Signs
from gpudiag.causes.shared.steps import CuInitFailed
from gpudiag.fix import Kind, check, export, note, nvidia_smi
from gpudiag.knowledge.messages.programs_and_drivers import COMPAT_REFUSED, TWO_VERSIONS
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.facts import DriverFacts, Facts
from gpudiag.model.report import Figure

CAUSE = Cause(
    title="{who} that {what} does not accept",
    fix=(
        export("LD_LIBRARY_PATH", "/opt/lib"),
        check("echo $LD_LIBRARY_PATH", "remove cuda/compat from it; in an image: rm /usr/local/cuda/compat/libcuda*"),
        nvidia_smi("if it prints 'Driver/library version mismatch', reboot instead"),
        note(
            "or use a newer driver, or an image with an older CUDA, so that the package is not needed",
            kind=Kind.CHANGE_DRIVER,
        ),
    ),
    url="https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html",
    needs_gpu=False,
    unless={
        "library_and_module_differ": "it names the two versions that do not fit",
    },
)


def find(facts: Facts, driver: DriverFacts, signs: Signs | None, error: CuInitFailed) -> Matches:
    if not re.search("COMPAT_NOT_SUPPORTED|DRIVER_MISMATCH", error):
        return
    folder, away = not_the_drivers_own(facts, COMPAT)
    taken = COMPAT in (driver.libcuda_path or "")
    # Error 804 is proof by itself, except that an upgrade of the driver without a restart ends in it, too.
    if not taken and ("COMPAT_NOT_SUPPORTED" not in error or (signs is not None and signs.two_versions)):
        return
    yield Match(
        evidence=(
            f"libcuda.so.1 is {driver.libcuda_path}",
            f"kernel module {driver.kernel_module}",
            f"cuInit: {error}",
        ),
        figures={
            "who": f"{folder} puts a libcuda before the driver's own"
            if folder
            else "libcuda.so.1 is a library for forward compatibility",
            "what": f"module {driver.kernel_module or '(not known)'} or this GPU",
        },
        fix=(away,),
        confidence=Confidence.PROVED if taken or not folder else Confidence.LIKELY,
        about=(folder,) if folder else (),
        tried=away,
    )


def find_in_log(program: Program) -> Matches:
    if not program.first(TWO_VERSIONS) and (said := program.said(COMPAT_REFUSED)):
        figures: dict[str, Figure] = {
            "who": "the program loaded a libcuda of a package for forward compatibility (cuda-compat)",
            "what": "its GPU or driver",
        }
        yield Match(said, Confidence.LIKELY, figures, fix=CAUSE.fix[1:])
