"""{own} runs natively under Windows, where TensorFlow has no GPU support since 2.11

2.10 was the last release with CUDA for native Windows. Later ones install tensorflow-intel, list no GPU and print no
line about CUDA. Neither a driver nor a CUDA toolkit for Windows changes that.
"""

from __future__ import annotations

import re

from gpudiag.cause import Cause, Evidence, Match, Matches
from gpudiag.causes.shared.packages import is_plain_cpu_build, shown, system_facts

CAUSE = Cause(
    fix=(
        "wsl --install  # in PowerShell",
        "pip install 'tensorflow[and-cuda]'  # in WSL",
        "pip install 'tensorflow<2.11'  # instead, with Python 3.10, CUDA 11.2 and cuDNN 8.1",
    ),
    url="https://www.tensorflow.org/install/pip#windows-native",
    views=("host.tensorflow.no_cuda",),
)


def find(evidence: Evidence) -> Matches:
    installed = is_plain_cpu_build(evidence)
    if installed is None or not system_facts(evidence).os.startswith("Windows"):
        return
    own = installed.distributions[0]
    release = re.match(r"(\d+)\.(\d+)", own.version)
    if release is None or (int(release[1]), int(release[2])) < (2, 11):
        return
    yield Match(
        evidence=(system_facts(evidence).os, *shown(installed), "is_cuda_build is False"),
        figures={"own": f"{own.name} {own.version}"},
    )
