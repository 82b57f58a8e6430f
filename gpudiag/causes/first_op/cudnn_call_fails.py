"""cuDNN cannot start or run on the GPU, most likely because no memory is left for it

cuDNN takes its own memory, beside the pool of TensorFlow or JAX that takes nearly all of the GPU at once. "Failed
to get convolution algorithm", "No algorithm worked!" and CUDNN_STATUS_EXECUTION_FAILED say no more than that it
failed. Other reasons are named in the lines above it: a cuDNN of another release, a GPU that is newer than the
libraries, a driver.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches, Program
from gpudiag.causes.shared.advice import built_for
from gpudiag.causes.shared.memory import GROW, GROW_BY_VARIABLE
from gpudiag.knowledge.messages.code import CUDNN_OLDER
from gpudiag.knowledge.messages.programs_and_drivers import CUDNN_CALL_FAILED
from gpudiag.knowledge.origin import Origin
from gpudiag.model.diagnosis import Confidence

CAUSE = Cause(
    fix=(
        GROW,
        GROW_BY_VARIABLE,
        "nvidia-smi  # and end what else holds the GPU's memory",
        "# if it comes with an empty GPU, too: the cuDNN and the GPU do not fit this TensorFlow",
    ),
    url="https://www.tensorflow.org/guide/gpu#limiting_gpu_memory_growth",
    needs_gpu=False,
    symptom=True,
    unless=(
        "cudnn_too_old",
        "no_room_for_libraries",
        "cudnn_incomplete",
        "cudnn_finds_no_libcuda",
        "driver_older_than_cuda",
        "library_and_module_differ",
        "memory_held_by_others",
        "tensors_do_not_fit",
        "gpu_newer_than_wheel",
        "ptxas_too_old",
        "no_code_for_gpu",
        "cuda_libraries_mixed",
        "kernel_failed",
        "little_memory_left",
    ),
)


def find(program: Program, origin: Origin) -> Matches:
    if program.first(CUDNN_OLDER) or not (said := program.said(CUDNN_CALL_FAILED)):
        return
    jax = origin.jax
    yield Match(
        said,
        Confidence.POSSIBLE,
        fix=(
            "export XLA_PYTHON_CLIENT_MEM_FRACTION=.6  # leaves room beside JAX's pool" if jax else GROW,
            "export XLA_PYTHON_CLIENT_PREALLOCATE=false  # or" if jax else GROW_BY_VARIABLE,
            ...,
            "# if it comes with an empty GPU, too: the cuDNN and the GPU must fit this TensorFlow"
            + (f", {built_for(origin)}" if origin.is_one else ""),
        ),
    )
