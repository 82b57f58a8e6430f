"""TensorFlow runs natively under Windows, where it has no GPU support since 2.11

2.10 was the last release with CUDA for native Windows. Later ones install tensorflow-intel, list no GPU and print no
line about CUDA. Neither a driver nor a CUDA toolkit for Windows changes that.
"""

from __future__ import annotations

import re

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.packages import CpuBuild, shown
from gpudiag.fix import Kind, install, run
from gpudiag.model.facts import SystemFacts

CAUSE = Cause(
    title="{own} runs natively under Windows, where TensorFlow has no GPU support since 2.11",
    fix=(
        run("wsl --install", "in PowerShell", kind=Kind.INSTALL),
        install("tensorflow[and-cuda]", note="in WSL"),
        install("tensorflow<2.11", note="if you want no WSL, with Python 3.10, CUDA 11.2 and cuDNN 8.1"),
    ),
    url="https://www.tensorflow.org/install/pip#windows-native",
    views=("host.tensorflow.no_cuda",),
)


def find(build: CpuBuild, system: SystemFacts) -> Matches:
    release = re.match(r"(\d+)\.(\d+)", build.own.version)
    native = system.os.startswith("Windows")
    if not native or release is None or (int(release[1]), int(release[2])) < (2, 11):
        return
    yield Match(
        evidence=(system.os, *shown(build.installed), "is_cuda_build is False"),
        figures={"own": f"{build.own.name} {build.own.version}"},
    )
