"""cuBLAS and cuBLASLt multiply on every GPU, in each type and with TF32 on and off, as the CPU does.

What it does
    Multiplies matrices in float64, float32, float16 and bfloat16, transposed ones, large ones in float16, a batch of
    them, a matrix and a vector, and a product with a bias and a ReLU in a `tf.function`, which TensorFlow turns into
    one call of cuBLASLt. It compares each with the CPU's product in float64 of the same inputs. With TF32 off, a
    float32 product must be as exact as float32 is.
Why it matters
    Dense layers, attention and recurrent cells are products of matrices. GPUs are listed and tensors can be copied
    although cuBLAS cannot start: it takes memory beside TensorFlow's pool, and opens only at the first product.
What to do
    If it cannot start, leave memory to it: `export TF_FORCE_GPU_ALLOW_GROWTH=true`. If it is of another CUDA
    release than TensorFlow was built for, install the libraries that fit: `pip install 'tensorflow[and-cuda]'`. A
    product that is wrong only with TF32 off means that something switches it on: `unset NVIDIA_TF32_OVERRIDE`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from gpudiag import probe
from gpudiag.probe import Context, Findings
from gpudiag.probes import comparison
from gpudiag.probes.comparison import BFLOAT16, DOUBLE, HALF, SINGLE, TF32, Computation, compare, normal

PROBE = probe.Probe(needs=comparison.NEEDS, scope=probe.Scope.ALL_GPUS, quick=True)


class Fault(comparison.LibraryFaults):
    pass


class Reading(comparison.LibraryReading):
    """The matrix products on each GPU."""


def measure(ctx: Context) -> Reading:
    tf = ctx.tf
    square = normal(64, 64), normal(64, 64, seed=1)
    flat = normal(528, 64), normal(520, 64, seed=1)  # the library has other kernels for large products
    batch = normal(3, 32, 64), normal(3, 64, 32, seed=1)

    def with_tf32(on: bool) -> Callable[..., Any]:
        def multiply(left: Any, other: Any) -> Any:
            tf.config.experimental.enable_tensor_float_32_execution(on)
            return tf.matmul(left, other)

        return multiply

    def transposed(left: Any, other: Any) -> Any:
        return tf.matmul(left, other, transpose_b=True)

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def fused(left: Any, other: Any, bias: Any) -> Any:
        return tf.nn.relu(tf.nn.bias_add(tf.matmul(left, other), bias))

    forced = os.environ.get("NVIDIA_TF32_OVERRIDE") == "1"  # over what TensorFlow asks for: a setting, no fault
    return compare(
        ctx,
        Reading,
        (
            Computation("product, float32 without TF32", with_tf32(False), square, most=TF32 if forced else SINGLE),
            Computation("product, float32 with TF32", with_tf32(True), square, most=TF32),
            Computation("product, float64", tf.matmul, square, "float64", DOUBLE),
            Computation("product, float16", tf.matmul, square, "float16", HALF),
            Computation("product, bfloat16", tf.matmul, square, "bfloat16", BFLOAT16),
            Computation("product of a transposed matrix", transposed, square, most=TF32),
            Computation("large product, float16", transposed, flat, "float16", HALF),
            Computation("batch of products", tf.matmul, batch, most=TF32),
            Computation("matrix and vector", tf.linalg.matvec, (square[0], normal(64)), most=TF32),
            Computation("product, bias and ReLU", fused, (*square, normal(64)), most=TF32),
        ),
        ("TF32 off (NVIDIA_TF32_OVERRIDE=1)",) if forced else (),
    )


def judge(reading: Reading) -> Findings:
    yield from reading.judged("cuBLAS")
