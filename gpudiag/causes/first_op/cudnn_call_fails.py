"""cuDNN cannot start or run on the GPU

"DNN library is not found", with no line about memory, comes most often from a cuDNN that does not fit TensorFlow: a
lower minor version than it was built with, or a copy of another program found first. cuDNN takes its own memory,
beside the pool of TensorFlow or JAX that takes nearly all of the GPU at once. "Failed to get convolution algorithm",
"No algorithm worked!" and CUDNN_STATUS_EXECUTION_FAILED say no more than that it failed. Other reasons are named in the
lines above it: a cuDNN of another release, a GPU that is newer than the libraries, a driver.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches, Program
from gpudiag.causes.shared.advice import built_for, cudnn
from gpudiag.causes.shared.memory import GROW, GROW_BY_VARIABLE, MOST_IS_FREE, free_share
from gpudiag.fix import Kind, Role, ask, check, export, note, nvidia_smi
from gpudiag.knowledge.messages.code import CUDNN_OLDER
from gpudiag.knowledge.messages.programs_and_drivers import CUDNN_CALL_FAILED, CUDNN_NOT_THERE
from gpudiag.knowledge.origin import Origin
from gpudiag.model.diagnosis import Confidence

CAUSE = Cause(
    title="cuDNN cannot start or run on the GPU, {why}",
    fix=(
        GROW,
        GROW_BY_VARIABLE,
        nvidia_smi("shows what else holds the GPU's memory: end it"),
        note("if it fails on an idle GPU, too, the cuDNN or the GPU does not fit this TensorFlow"),
    ),
    url="https://www.tensorflow.org/guide/gpu#limiting_gpu_memory_growth",
    needs_gpu=False,
    symptom=True,
    unless={
        "gpu_newer_than_wheel": "cuDNN fails for lack of code for the GPU",
        "ptxas_too_old": "cuDNN fails because its kernel was not compiled",
        "no_code_for_gpu": "cuDNN fails for lack of code for the GPU",
        "kernel_failed": "every later call fails, too, after a kernel has failed",
    },
)


_WHICH = (
    ask(
        "python -c 'import tensorflow as tf; print(tf.__version__, tf.sysconfig.get_build_info())'",
        "shows which cuDNN it needs: install that, or a newer one of the same major version",
    ),
    check("ldconfig -p | grep libcudnn", "shows which cuDNN is found"),
)
"""The advice if the log does not show which TensorFlow wrote it."""


def find(program: Program, origin: Origin) -> Matches:
    said = program.said(CUDNN_CALL_FAILED, CUDNN_NOT_THERE)
    if program.first(CUDNN_OLDER) or not said:
        return
    jax = origin.jax
    if (free := free_share(program) or 0) > MOST_IS_FREE:
        yield Match(
            said,
            Confidence.POSSIBLE,
            {
                "why": f"though {free:.0%} of the GPU's memory is free: the cuDNN that is loaded may not fit the "
                "program or the driver"
            },
            fix=(
                *_WHICH,
                nvidia_smi("shows the driver's version and the newest CUDA that it supports"),
            ),
        )
        return
    if program.first(CUDNN_NOT_THERE) and not jax:
        first, *see = cudnn(origin, origin.generation.cudnn) if origin.is_one else _WHICH
        needs = f": this one needs {built_for(origin)}" if origin.is_one else ""
        yield Match(
            said,
            Confidence.POSSIBLE,
            {
                "why": "most likely because the one that is found does not fit this TensorFlow, or no memory is left",
            },
            fix=(
                first,
                note(f"or a TensorFlow that was built for the cuDNN that is there{needs}", kind=Kind.INSTALL),
                *see[:1],
                GROW,
                nvidia_smi("shows what else holds the GPU's memory: end it"),
            ),
        )
        return
    yield Match(
        said,
        Confidence.POSSIBLE,
        {"why": "most likely because no memory is left for it"},
        fix=(
            export("XLA_PYTHON_CLIENT_MEM_FRACTION", ".6", "leaves room beside JAX's pool") if jax else GROW,
            export("XLA_PYTHON_CLIENT_PREALLOCATE", "false", role=Role.ALTERNATIVE) if jax else GROW_BY_VARIABLE,
            CAUSE.fix[2],
            note(
                "if it fails on an idle GPU, too, the cuDNN and the GPU must fit this TensorFlow"
                + (f", {built_for(origin)}" if origin.is_one else "")
            ),
        ),
    )
