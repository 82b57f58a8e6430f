"""the NVIDIA driver is too old for the CUDA that {who}

A driver runs the CUDA of its release and older ones, and newer ones of the same major version within limits: what is
compiled from PTX (by XLA, or on a GPU that the binary has no code for) needs a driver of that CUDA itself. `nvidia-smi`
shows the newest CUDA that the driver runs. No CUDA library that is installed helps: the driver is what is too old.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches, Program
from gpudiag.causes.shared.advice import driver
from gpudiag.fix import Kind, Role, note, nvidia_smi, run
from gpudiag.knowledge.messages.programs_and_drivers import OLD_DRIVER, PTX_TOO_NEW
from gpudiag.knowledge.origin import Origin
from gpudiag.knowledge.releases import DRIVERS, numbers
from gpudiag.model.diagnosis import Confidence

CAUSE = Cause(
    fix=(
        run("sudo ubuntu-drivers install; sudo reboot", "525.60 or newer", kind=Kind.CHANGE_DRIVER),
        nvidia_smi("shows the driver, and the newest CUDA that it runs"),
        note("or a TensorFlow that was built for the CUDA that this driver runs", kind=Kind.INSTALL),
    ),
    url="https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html",
    needs_gpu=False,
)


def find(program: Program, origin: Origin) -> Matches:
    ptx = program.said(PTX_TOO_NEW)
    said = program.said(OLD_DRIVER)
    if not (ptx or said):
        return
    needed = driver(origin, ptx=not said)
    cuda = f" (CUDA {origin.generation.cuda})" if origin.is_one else ""
    stated = origin.stated.driver
    runs = origin.stated.driver_cuda
    bring = note("or a TensorFlow (in conda: a cudatoolkit) of the CUDA that this driver runs", kind=Kind.INSTALL)
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
    )


def _is_enough(stated: str, origin: Origin) -> bool:
    linux, windows = DRIVERS[origin.generation.cuda]
    return numbers(stated) >= numbers(windows if origin.windows else linux)
