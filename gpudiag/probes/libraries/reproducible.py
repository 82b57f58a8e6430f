"""The same seed gives the same random numbers, and deterministic operations give the same bits twice, on every GPU.

What it does
    Draws stateless random numbers on the CPU and on each GPU, which must be the same; draws others twice from one
    seed, by `tf.random.set_seed` and by a `tf.random.Generator`. Then it switches on
    `tf.config.experimental.enable_op_determinism()` and computes twice the sums that GPUs otherwise add in any order:
    the gradients of a convolution and of a bias, and the sums of segments. Not one bit may differ.
Why it matters
    An experiment can be repeated, and a fault found, only if the numbers are the same again. Results that differ in
    spite of determinism are a sign of a GPU that computes wrong now and then.
What to do
    If random numbers differ, look for code that draws others in between, and use
    `tf.random.Generator.from_seed(1)`. If deterministic operations differ, trust no result of this GPU: `nvidia-smi
    -q -d ECC`, `sudo dcgmi diag -r 3`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpudiag import probe
from gpudiag.probe import Context, Findings
from gpudiag.probes import comparison
from gpudiag.probes.comparison import Computation, compare, normal

PROBE = probe.Probe(needs=comparison.NEEDS, scope=probe.Scope.ALL_GPUS, sampled=True)


class Fault(comparison.LibraryFaults):
    pass


class Reading(comparison.LibraryReading):
    """The random numbers and deterministic results of each GPU."""


SEED, SHAPE = [7, 11], [64]
NEAR = 1e-4
"""The allowed difference: CPU and GPU round the logarithm and sine behind normal numbers differently in the last
digits."""


def measure(ctx: Context) -> Reading:
    tf = ctx.tf
    random = tf.random

    def seeded() -> Any:
        random.set_seed(7)
        return random.normal(SHAPE)

    def determined(compute: Callable[..., Any]) -> Callable[..., Any]:
        def run(*inputs: Any) -> Any:
            tf.config.experimental.enable_op_determinism()
            with tf.GradientTape() as tape:
                tape.watch(inputs[-1])
                made = tf.reduce_sum(compute(*inputs) ** 2)
            return tape.gradient(made, inputs[-1])

        return run

    images, filters, rows = normal(4, 8, 8, 4), normal(3, 3, 4, 4), normal(256, 4)

    def segments(values: Any) -> Any:
        return tf.math.unsorted_segment_sum(values, tf.range(256) % 5, 5)

    def convolve(*of: Any) -> Any:
        return tf.nn.conv2d(*of, 1, "SAME")

    def exact(name: str, compute: Callable[..., Any], *inputs: Any) -> Computation:
        return Computation(name, compute, inputs, most=0.0, twice=True)

    return compare(
        ctx,
        Reading,
        (
            Computation("stateless uniform", lambda: random.stateless_uniform(SHAPE, SEED), most=1e-6),
            Computation("stateless normal", lambda: random.stateless_normal(SHAPE, SEED), most=NEAR),
            exact("normal, set_seed", seeded),
            exact("normal, Generator", lambda: random.Generator.from_seed(7).normal(SHAPE)),
            exact("gradient of a convolution", determined(convolve), images, filters),
            exact("gradient of a bias", determined(tf.nn.bias_add), images, normal(4)),
            exact("sums of segments", determined(segments), rows),
        ),
    )


def judge(reading: Reading) -> Findings:
    yield from reading.judged("TensorFlow")
