"""the ptxas that XLA found is too old for the GPU: it does not know {target}

XLA compiles kernels with the ptxas of a CUDA toolkit that it finds in NVIDIA's package, in --xla_gpu_cuda_data_dir,
or on PATH. One that is older than the GPU does not know its generation: 10.0 and 12.0 (Blackwell) came with CUDA
12.8, 9.0 (Hopper) and 8.9 (Ada) with 11.8. XLA then lets the driver compile, or fails where it must not.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Evidence, Match, Matches
from gpudiag.knowledge.messages.code import PTXAS_TOO_OLD
from gpudiag.log import text
from gpudiag.model import Severity

CAUSE = Cause(
    severity=Severity.WARNING,
    fix=(
        "pip install --upgrade 'nvidia-cuda-nvcc-cu12'  # has a ptxas that XLA finds",
        "python -c \"import shutil; print(shutil.which('ptxas'))\"  # take one of an older toolkit out of PATH",
    ),
    url="https://docs.nvidia.com/cuda/cuda-compiler-driver-nvcc/#gpu-feature-list",
    needs_gpu=False,
)


def find(evidence: Evidence) -> Matches:
    if said := evidence.unprovoked.first(PTXAS_TOO_OLD):
        yield Match(evidence=(text(said.line),), figures={"target": said["target"]})
