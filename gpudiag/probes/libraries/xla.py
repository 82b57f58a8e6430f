"""XLA compiles for every GPU, and the compiled code computes as the CPU does.

What it does
    Compiles four functions with `jit_compile=True` and compares their results with the CPU's, without XLA:
    mathematical functions (they need libdevice), a sum (ptxas), a product of matrices (tries of several algorithms)
    and a convolution. Simulated GPUs cannot run compiled code: the probe is skipped there.
Why it matters
    Keras compiles with XLA on GPUs by itself (`jit_compile="auto"`). Only XLA needs ptxas and nvlink that know the GPU,
    and libdevice. If one is missing, a model fails at its first `fit`.
What to do
    Install the compiler's parts: `pip install nvidia-cuda-nvcc-cu12`. If an older ptxas comes first: `which ptxas`,
    and take that folder out of `PATH`. To do without XLA: `model.compile(..., jit_compile=False)`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from gpudiag import probe
from gpudiag.probe import Context, Findings
from gpudiag.probes import comparison
from gpudiag.probes.comparison import TF32, Computation, compare, normal

PROBE = probe.Probe(
    needs=msgspec.structs.replace(comparison.NEEDS, real_gpus=True), scope=probe.Scope.ALL_GPUS, deadline_s=180
)


class Fault(comparison.LibraryFaults):
    pass


class Reading(comparison.LibraryReading):
    """The results of compiled code on each GPU."""


def measure(ctx: Context) -> Reading:
    tf = ctx.tf

    def of(name: str, function: Callable[..., Any], *inputs: Any) -> Computation:
        compiled = tf.function(function, jit_compile=True)

        def compute(*arguments: Any) -> Any:
            return (function if arguments[0].device.endswith("CPU:0") else compiled)(*arguments)

        return Computation(name, compute, inputs, most=TF32)

    square, images = normal(64, 64), normal(2, 8, 8, 8)
    return compare(
        ctx,
        Reading,
        (
            of("mathematical functions", lambda x: tf.exp(tf.sin(x)) + tf.math.erf(x), square),
            of("a sum", lambda x: tf.reduce_sum(x**2, 0), square),
            of("a product", tf.matmul, square, normal(64, 64, seed=1)),
            of("a convolution", lambda *of: tf.nn.conv2d(*of, 1, "SAME"), images, normal(3, 3, 8, 8, seed=1)),
        ),
    )


def judge(reading: Reading) -> Findings:
    yield from reading.judged("XLA")
