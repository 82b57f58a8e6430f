"""a kernel of the program that wrote the log was not built for its GPU

Machine code runs on GPUs of the generation it was compiled for, PTX on later ones, too. CUDA_ERROR_NO_BINARY_FOR_GPU
and "no kernel image is available" say that a kernel has neither for this GPU: TensorFlow's wheel, NVIDIA's library, or
an extension that was built for other GPUs. Another driver does not help.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches, Program
from gpudiag.fix import Kind, ask, note, nvidia_smi
from gpudiag.knowledge.messages.code import NO_CODE_FOR_GPU
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.facts import Facts
from gpudiag.model.report import Severity

CAUSE = Cause(
    severity=Severity.WARNING,
    fix=(
        nvidia_smi("shows the GPU's compute capability", "--query-gpu=name,compute_cap --format=csv"),
        ask("python -c 'import tensorflow as tf; print(tf.sysconfig.get_build_info()[\"cuda_compute_capabilities\"])'"),
        note("use a TensorFlow that has this capability, or build the failing extension for it", kind=Kind.INSTALL),
    ),
    url="https://docs.nvidia.com/cuda/cuda-c-programming-guide/#binary-compatibility",
    needs_gpu=False,
)


def find(facts: Facts, program: Program) -> Matches:
    said = program.said(NO_CODE_FOR_GPU)
    if said:
        gpus = tuple(
            f"GPU {device.index} here: {device.name}, compute capability {device.compute_capability}"
            for device in facts.nvml_devices
            if device.compute_capability
        )
        yield Match(evidence=(*said, *gpus), confidence=Confidence.LIKELY)
