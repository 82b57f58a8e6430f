"""TensorFlow and another framework are both at work on the GPU, and each takes more than its share

TensorFlow takes nearly all memory of each GPU at its first operation, also if it only loads data (tf.data,
tensorflow_datasets, TensorBoard), and JAX takes three quarters at its own. The one that comes second finds none, and
the error is its own: RESOURCE_EXHAUSTED, CUDA out of memory or CUBLAS_STATUS_NOT_INITIALIZED.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches, Program
from gpudiag.causes.shared.memory import OF_FRAMEWORKS
from gpudiag.fix import edit, export
from gpudiag.knowledge.log_lines import text
from gpudiag.knowledge.messages.memory import (
    DEVICE_FULL,
    JAX_AT_WORK,
    JAX_FULL,
    NO_HANDLE,
    POOL_FULL,
    TORCH_AT_WORK,
    TORCH_FULL,
)
from gpudiag.knowledge.messages.way import DEVICE_CREATED
from gpudiag.knowledge.origin import Origin
from gpudiag.model.diagnosis import Confidence

CAUSE = Cause(
    title="TensorFlow and {name} are both at work on the GPU, and each takes more than its share",
    fix=(
        edit(
            "tf.config.set_visible_devices([], 'GPU')", "if TensorFlow only loads data; put it right after the import"
        ),
        export("TF_FORCE_GPU_ALLOW_GROWTH", "true", "if TensorFlow also computes"),
        export(
            "XLA_PYTHON_CLIENT_PREALLOCATE", "false", "stops JAX from taking three quarters of the memory at its start"
        ),
    ),
    url="https://docs.jax.dev/en/latest/gpu_memory_allocation.html",
)
_FRAMEWORKS = {
    "jax": (
        "JAX",
        export(
            "XLA_PYTHON_CLIENT_PREALLOCATE", "false", "stops JAX from taking three quarters of the memory at its start"
        ),
    ),
    "torch": ("PyTorch", edit("torch.cuda.set_per_process_memory_fraction(0.5)")),
}


def find(program: Program, origin: Origin) -> Matches:
    if origin.is_of_another:
        return
    failed = program.said(JAX_FULL, TORCH_FULL)
    made = program.said(DEVICE_CREATED, most=1)
    if not (failed and made):  # or TensorFlow is the one that found no memory
        failed = program.said(DEVICE_FULL, POOL_FULL, NO_HANDLE, most=1)
        if not failed or not program.first(JAX_AT_WORK, TORCH_AT_WORK):
            return
    found = program.first(*OF_FRAMEWORKS)
    assert found is not None
    name, share = _FRAMEWORKS["jax" if found.message in (JAX_FULL, JAX_AT_WORK) else "torch"]
    other = () if found.message in (JAX_FULL, TORCH_FULL) else (text(found.line),)
    yield Match(
        evidence=(*made, *failed, *other),
        confidence=Confidence.LIKELY,
        figures={"name": name},
        fix=(CAUSE.fix[0], CAUSE.fix[1], share),
    )
