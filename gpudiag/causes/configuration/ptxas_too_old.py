"""the ptxas that XLA found is too old for the GPU

XLA compiles kernels with the ptxas of a CUDA toolkit that it finds in NVIDIA's package, in --xla_gpu_cuda_data_dir, or
on PATH. One that is older than the GPU does not know its generation: 10.0 and 12.0 (Blackwell) came with CUDA 12.8, 9.0
(Hopper) and 8.9 (Ada) with 11.8. XLA then lets the driver compile, or fails if it must not.
"""

from __future__ import annotations

import re

from gpudiag.cause import Cause, LogAlone, Match, Matches, Unprovoked
from gpudiag.causes.shared import advice
from gpudiag.fix import ask, install, note
from gpudiag.knowledge.log_lines import text
from gpudiag.knowledge.messages.code import PTXAS_TOO_OLD
from gpudiag.knowledge.messages.programs_and_drivers import BLAS_CALL_FAILED, CUDNN_CALL_FAILED
from gpudiag.knowledge.origin import Origin
from gpudiag.knowledge.releases import NEW_IN
from gpudiag.model.report import Figure, Severity

CAUSE = Cause(
    title="the ptxas that XLA found is too old for the GPU: it does not support {target}",
    severity=Severity.WARNING,
    fix=(
        install("--upgrade", "nvidia-cuda-nvcc-cu12", note="brings a ptxas that XLA finds"),
        ask(
            "python -c \"import shutil; print(shutil.which('ptxas'))\"",
            "if it is from an older toolkit, remove that from PATH",
        ),
    ),
    url="https://docs.nvidia.com/cuda/cuda-compiler-driver-nvcc/#gpu-feature-list",
    needs_gpu=False,
)


def find(log: Unprovoked, alone: LogAlone | None, origin: Origin) -> Matches:
    if said := log.first(PTXAS_TOO_OLD):
        figures: dict[str, Figure] = {"target": said["target"]}
        if alone is not None:
            number = re.sub(r"\D", "", said["target"])
            lines = advice.compiler(origin, f"{number[:-1]}.{number[-1:]}")
            goes_on = any("fallback to the NVIDIA driver" in line for line in alone.lines)
            if alone.first(CUDNN_CALL_FAILED, BLAS_CALL_FAILED):  # then all of that CUDA is too old, not ptxas alone
                known = NEW_IN.get(f"{number[:-1]}.{number[-1:]}", "")
                newer = note(
                    f"this TensorFlow's CUDA is older than the GPU{f', which needs {known} or newer' * bool(known)}:"
                )
                lines = (newer, install("--upgrade", "tensorflow[and-cuda]"), *lines)
            elif goes_on:
                lines += (note("nothing is broken without it: the driver compiles, more slowly"),)
            yield Match((text(said.line),), figures=figures, fix=lines)
        else:
            yield Match(evidence=(text(said.line),), figures=figures)
