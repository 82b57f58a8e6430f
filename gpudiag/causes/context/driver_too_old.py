"""the NVIDIA driver is too old for the CUDA that TensorFlow or the program was built with

A driver runs the CUDA of its release and older ones, and newer ones of the same major version within limits: what is
compiled from PTX (by XLA, or on a GPU that the binary has no code for) needs a driver of that CUDA itself. `nvidia-smi`
shows the newest CUDA that the driver runs. No CUDA library that is installed helps: the driver is what is too old.
"""

from __future__ import annotations

import re

from gpudiag.cause import Cause, EveryLog, Match, Matches, Program
from gpudiag.causes.shared.advice import driver
from gpudiag.causes.shared.machine import install_command
from gpudiag.causes.shared.signs import Signs
from gpudiag.fix import Action, Kind, Role, conda_environment, install, note, nvidia_smi, run
from gpudiag.knowledge.messages.programs_and_drivers import PTX_TOO_NEW
from gpudiag.knowledge.messages.way import DRIVER_TOO_OLD
from gpudiag.knowledge.origin import Origin
from gpudiag.knowledge.releases import DRIVERS, Version, numbers
from gpudiag.knowledge.requirements import wheels
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.facts import Facts, Unknown

CAUSE = Cause(
    title="the NVIDIA driver is too old for the CUDA that {who}",
    unfit=True,
    fix=(
        run("sudo ubuntu-drivers install; sudo reboot", "525.60 or newer", kind=Kind.CHANGE_DRIVER),
        nvidia_smi("shows the driver's version and the newest CUDA that it supports"),
        note("or install a TensorFlow that was built for a CUDA that this driver supports", kind=Kind.INSTALL),
    ),
    url="https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html",
    finding="host.driver.old_driver",
    needs_gpu=False,
)
_DATA_CENTRE = re.compile(r"\b(Tesla|[ABHLPTV]\d{1,3}S?|GB?\d{3}|GH\d{3})\b")
_LAST_OF_CUDA_11 = Version(2, 14)
"""The one release whose extra ``and-cuda`` brings CUDA 11: https://www.tensorflow.org/install/source#gpu."""
_NEEDED = {11: "450.80", 12: "525.60", 13: "580.65"}
"""The oldest driver for a major version of CUDA, by minor version compatibility (release notes of the CUDA Toolkit)."""


def find(facts: Facts, log: EveryLog, signs: Signs) -> Matches:
    if signs.too_old is None:
        return
    supported, built = signs.too_old
    major, minor = [*built.split("."), "0"][:2]
    said = [event.line for event in log.all(DRIVER_TOO_OLD)]
    folder = f"/usr/local/cuda-{major}.{minor}/compat"
    keep = f"sudo apt install cuda-compat-{major}-{minor}; export LD_LIBRARY_PATH={folder}:$LD_LIBRARY_PATH"
    needed = _NEEDED.get(int(major) if major.isdecimal() else 0, f"for CUDA {built}")
    update = install_command(facts)
    yield Match(
        evidence=(f"the driver supports CUDA {supported}, TensorFlow was built with CUDA {built}", *said[:1]),
        figures={"who": f"TensorFlow was built with: it supports CUDA {supported} at most, not {built}"},
        fix=(
            update.replaced(note=f"{needed} or newer, then reboot" + (f"; {update.note}" if update.note else "")),
            run(keep, "or keep the driver: this is a data-centre GPU", kind=Kind.INSTALL_AS_ROOT)
            if any(_DATA_CENTRE.search(device.name) for device in facts.nvml_devices)
            else None,
            _earlier(facts, supported),
        ),
    )


def _earlier(facts: Facts, supported: str) -> Action | None:
    """Return how to get the last TensorFlow whose CUDA, which pip brings, this driver runs; None if there is none."""
    if supported.partition(".")[0] != "11" or isinstance(facts.system, Unknown):
        return None
    package = f"tensorflow[and-cuda]=={_LAST_OF_CUDA_11.major}.{_LAST_OF_CUDA_11.minor}.*"
    why = "was built for CUDA 11, which this driver runs"
    oldest, newest = wheels(_LAST_OF_CUDA_11, "linux_x86_64") or ("", "")
    if numbers(oldest) <= numbers(facts.system.python)[:2] <= numbers(newest):
        return install(package, note=why, role=Role.ALTERNATIVE)
    return conda_environment(package, python=newest, note=why).replaced(role=Role.ALTERNATIVE)


def find_in_log(program: Program, origin: Origin) -> Matches:
    ptx = program.said(PTX_TOO_NEW)
    said = program.said(DRIVER_TOO_OLD)
    if not (ptx or said):
        return
    needed = driver(origin, ptx=not said)
    cuda = f" (CUDA {origin.generation.cuda})" if origin.is_one else ""
    stated = origin.stated.driver
    runs = origin.stated.driver_cuda
    bring = note(
        "or install a TensorFlow (in conda: a cudatoolkit) for a CUDA that this driver supports", kind=Kind.INSTALL
    )
    if stated and said and origin.is_one and _is_enough(stated.value, origin):
        # What TensorFlow's wheel was built for runs on this driver: another CUDA was installed for it.
        cuda = f": {stated.value} runs up to CUDA {runs}, and a newer one is loaded, such as conda's" if runs else ""
        needed = f"newer than {stated.value}"
        bring = run(
            f"conda install 'cudatoolkit<={runs or origin.generation.cuda}'",
            "or one that this driver runs",
            kind=Kind.INSTALL,
            role=Role.ALTERNATIVE,
        )
    if said and any("nvidia-tensorflow" in line for line in program.lines):
        cuda = ": nvidia-tensorflow has CUDA 11, from release 23.01 on CUDA 12"
        needed = "525.60 or newer, for CUDA 11 450.80"
        bring = note(
            "or a release of nvidia-tensorflow for CUDA 11, up to nv22.12: https://github.com/NVIDIA/tensorflow"
        )
    update = (
        note(f"install a newer driver: {needed}: https://www.nvidia.com/drivers", kind=Kind.INSTALL)
        if origin.windows
        else run(
            "sudo ubuntu-drivers install; sudo reboot",
            f"{needed}; in a container or WSL: on the host",
            kind=Kind.CHANGE_DRIVER,
        )
    )
    yield Match(
        (*(*said, *ptx)[:3], *((stated.line,) if stated else ())),
        Confidence.PROVED if said else Confidence.LIKELY,
        {"who": f"compiled the program's PTX{cuda}" if ptx and not said else f"TensorFlow uses{cuda}"},
        fix=(update, CAUSE.fix[1], bring),
        unfit=False,
    )


def _is_enough(stated: str, origin: Origin) -> bool:
    linux, windows = DRIVERS[origin.generation.cuda]
    return numbers(stated) >= numbers(windows if origin.windows else linux)
