"""cuDNN convolves on every GPU, forward and backward, as the CPU does.

What it does
    Computes convolutions in two dimensions (float32 and float16, channels last and channels first, with a stride) and
    in three, and the gradients of one by its input and by its filter. It compares them with the CPU's.
Why it matters
    Convolutions are done by cuDNN alone, and it is opened for the first of them: GPUs are listed and matrices can
    be multiplied although it cannot start, is too old, or lacks one of its parts. "No DNN in stream executor" is
    all that a program sees then; the reason is in the log.
What to do
    If it cannot start (CUDNN_STATUS_NOT_INITIALIZED), leave memory to it: `export TF_FORCE_GPU_ALLOW_GROWTH=true`,
    and look at the driver: `nvidia-smi`. If it is too old, or its parts are of different versions: `pip install
    --force-reinstall 'nvidia-cudnn-cu12>=9.3,<10'`, and `unset LD_LIBRARY_PATH`.
"""

from __future__ import annotations

from typing import Any

from gpudiag import probe
from gpudiag.probe import Context, Findings
from gpudiag.probes import comparison
from gpudiag.probes.comparison import HALF, TF32, Computation, compare, normal

PROBE = probe.Probe(
    needs=comparison.NEEDS,
    scope=probe.Scope.ALL_GPUS,
    quick=True,
    deadline_s=120,  # on a real GPU TensorFlow tries the algorithms of each convolution
)


class Fault(comparison.LibraryFaults):
    pass


class Reading(comparison.LibraryReading):
    """The convolutions on each GPU."""


def measure(ctx: Context) -> Reading:
    tf = ctx.tf
    images, filters = normal(2, 8, 8, 8), normal(3, 3, 8, 8, seed=1)
    volumes = normal(1, 4, 4, 4, 2), normal(2, 2, 2, 2, 3, seed=1)

    def convolve(inputs: Any, kernel: Any) -> Any:
        return tf.nn.conv2d(inputs, kernel, 1, "SAME")

    def channels_first(inputs: Any, kernel: Any) -> Any:
        if inputs.device.endswith("CPU:0"):
            return convolve(inputs, kernel)
        made = tf.nn.conv2d(tf.transpose(inputs, [0, 3, 1, 2]), kernel, 1, "SAME", data_format="NCHW")
        return tf.transpose(made, [0, 2, 3, 1])

    def gradient(of_filter: bool) -> Any:
        def differentiate(inputs: Any, kernel: Any) -> Any:
            with tf.GradientTape() as tape:
                source = kernel if of_filter else inputs
                tape.watch(source)
                made = tf.reduce_sum(convolve(inputs, kernel) ** 2)
            return tape.gradient(made, source)

        return differentiate

    computations = [
        Computation("convolution, float32", convolve, (images, filters), most=TF32),
        Computation("convolution with channels first", channels_first, (images, filters), most=TF32),
        Computation(
            "convolution with stride 2", lambda *of: tf.nn.conv2d(*of, 2, "SAME"), (images, filters), most=TF32
        ),
        Computation("convolution, float16", convolve, (images, filters), "float16", HALF, "float32"),
        Computation("gradient by the input", gradient(False), (images, filters), most=TF32),
        Computation("gradient by the filter", gradient(True), (images, filters), most=TF32),
        Computation(
            "convolution in three dimensions", lambda *of: tf.nn.conv3d(*of, [1] * 5, "SAME"), volumes, most=TF32
        ),
    ]
    return compare(ctx, Reading, computations)


def judge(reading: Reading) -> Findings:
    yield from reading.judged("cuDNN")
