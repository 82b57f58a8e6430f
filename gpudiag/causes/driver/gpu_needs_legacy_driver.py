"""a GPU needs a legacy driver; the installed driver does not support it

Each branch of NVIDIA's driver drops old GPUs: 495 dropped Kepler, 590 dropped Maxwell, Pascal and Volta. A driver that
is too new loads, finds no GPU that it supports and unloads again, as if the module could not be loaded; the kernel's
log names the branch. Branch 470 serves CUDA 11 alone, and TensorFlow from 2.15 on needs CUDA 12.
"""

from __future__ import annotations

import re

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.gpu_state import KernelLog, NoneListed
from gpudiag.causes.shared.machine import container, operating_system
from gpudiag.fix import Kind, fill_in, note, reboot, run
from gpudiag.knowledge.systems import OTHER, system_of
from gpudiag.model.diagnosis import Stage
from gpudiag.model.facts import DriverFacts, Facts

CAUSE = Cause(
    title="{gpu} needs the legacy driver {branch}; the installed driver {installed} does not support it",
    unfit=True,
    fix=(
        run("sudo apt install nvidia-driver-470", kind=Kind.CHANGE_DRIVER),
        reboot(),
        note("TensorFlow 2.14 or earlier: driver 470 serves CUDA 11 alone", kind=Kind.INSTALL),
    ),
    url="https://www.nvidia.com/en-us/drivers/unix/legacy-gpu/",
    views=("host.driver.no_module",),
)
_BRANCH = re.compile(r"supported through the NVIDIA (?P<branch>\d+)\.xx Legacy")
_GPU = re.compile(r"NVRM: {1,8}The NVIDIA (?P<name>[^\n]{1,80}) GPU installed in this system")
_INSTALLED = re.compile(r" (?P<version>\d[\d.]*) NVIDIA driver will ignore")
_FIRST_FOR_CUDA_12 = 525
_OF_DEBIAN = run("sudo apt install nvidia-tesla-{branch}-driver", kind=Kind.CHANGE_DRIVER)
_GENERAL = note("install NVIDIA's driver {branch}.xx", kind=Kind.CHANGE_DRIVER)


def find(driver: DriverFacts, facts: Facts, kernel: KernelLog, none_listed: NoneListed | None) -> Matches:
    log = "\n".join(kernel)
    branch, gpu, installed = (pattern.search(log) for pattern in (_BRANCH, _GPU, _INSTALLED))
    if branch is None or container(facts) or facts.nvml_devices:
        return
    name = operating_system(facts)[0]
    install = _OF_DEBIAN if "Debian" in name else (system_of(name) or OTHER).legacy or _GENERAL
    old = int(branch["branch"]) < _FIRST_FOR_CUDA_12
    yield Match(
        evidence=kernel.last("Legacy", "will ignore", "installed in this system"),
        figures={
            "installed": installed["version"] if installed else driver.kernel_module or "",
            "gpu": gpu["name"] if gpu else "the GPU",
            "branch": f"{branch['branch']}.xx",
        },
        fix=(
            fill_in(install, {"branch": branch["branch"]}),
            CAUSE.fix[1],
            note(f"TensorFlow 2.14 or earlier: driver {branch['branch']} serves CUDA 11 alone", kind=Kind.INSTALL)
            if old
            else None,
        ),
        stage=(Stage.DRIVER_LIBRARY if driver.libcuda_path is None else Stage.DRIVER)
        if none_listed is not None
        else Stage.CONFIGURATION,
    )
