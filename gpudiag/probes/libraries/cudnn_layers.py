"""cuDNN normalises, pools and runs a recurrent layer on every GPU as the CPU does.

What it does
    Computes a batch normalisation for training and for inference and its gradient, a maximum and an average pooling
    and an LSTM layer as Keras computes it with cuDNN. It compares them with the CPU's. Attention is not
    here: TensorFlow computes it with matrix products, see `libraries.cublas`.
Why it matters
    These are other parts of cuDNN (libcudnn_ops, libcudnn_adv) than convolutions are, in separate files, and an
    installation may lack one of them: a network that only convolves works, and the first with an LSTM fails.
What to do
    Install cuDNN again as a whole: `pip install --force-reinstall 'nvidia-cudnn-cu12>=9.3,<10'`. If another copy
    comes first: `unset LD_LIBRARY_PATH`. Keras can do without it: `keras.layers.LSTM(..., use_cudnn=False)`.
"""

from __future__ import annotations

from typing import Any

from gpudiag import probe
from gpudiag.probe import Context, Findings
from gpudiag.probes import comparison
from gpudiag.probes.comparison import TF32, Computation, compare, normal

PROBE = probe.Probe(needs=comparison.NEEDS, scope=probe.Scope.ALL_GPUS, sampled=True)


class Fault(comparison.LibraryFaults):
    pass


class Reading(comparison.LibraryReading):
    """The cuDNN layers computed on each GPU."""


UNITS = 8


def measure(ctx: Context) -> Reading:
    tf = ctx.tf
    images, scale = normal(2, 8, 8, 4), normal(4, seed=1)

    def normalise(inputs: Any, gamma: Any, *, training: bool) -> Any:
        zeros, ones = tf.zeros_like(gamma), tf.ones_like(gamma)
        known = (None, None) if training else (zeros, ones)
        return tf.compat.v1.nn.fused_batch_norm(inputs, gamma, zeros, *known, is_training=training)[0]

    def gradient(inputs: Any, gamma: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            made = tf.reduce_sum(normalise(inputs, gamma, training=True) ** 3)
        return tape.gradient(made, inputs)

    def of(name: str, compute: Any, *inputs: Any) -> Computation:
        return Computation(name, compute, inputs, most=TF32, reference="float32")  # the CPU has no float64 of some

    weights = normal(UNITS, 4 * UNITS, seed=2) / 4, normal(UNITS, 4 * UNITS, seed=3) / 4, normal(4 * UNITS, seed=4)
    computations = [
        of("batch normalisation, training", lambda *of: normalise(*of, training=True), images, scale),
        of("batch normalisation, inference", lambda *of: normalise(*of, training=False), images, scale),
        of("gradient of batch normalisation", gradient, images, scale),
        of("maximum pooling", lambda inputs: tf.nn.max_pool2d(inputs, 2, 2, "VALID"), images),
        of("average pooling", lambda inputs: tf.nn.avg_pool2d(inputs, 2, 2, "VALID"), images),
        of("LSTM layer", lambda *of: _lstm(tf, *of), normal(5, 2, UNITS), *weights),
    ]
    return compare(ctx, Reading, computations)


def _lstm(tf: Any, steps: Any, kernel: Any, recurrent: Any, bias: Any) -> Any:
    """Return the outputs of an LSTM over ``steps`` (time, batch, features), computed by cuDNN on a GPU and by hand on
    the CPU."""
    batch = steps.shape[1]
    if steps.device.endswith("CPU:0"):
        output = cell = tf.zeros([batch, UNITS], steps.dtype)
        outputs = []
        for step in tf.unstack(steps):
            enter, forget, new, leave = tf.split(step @ kernel + output @ recurrent + bias, 4, axis=1)
            cell = tf.sigmoid(forget) * cell + tf.sigmoid(enter) * tf.tanh(new)
            output = tf.sigmoid(leave) * tf.tanh(cell)
            outputs.append(output)
        return tf.stack(outputs)
    # cuDNN wants one vector: the weights of the four gates, transposed, and two biases of each, of which one is zero.
    gates = [*tf.split(kernel, 4, axis=1), *tf.split(recurrent, 4, axis=1)]
    vector = tf.concat([*(tf.reshape(tf.transpose(gate), [-1]) for gate in gates), tf.zeros_like(bias), bias], 0)
    zeros, lengths = tf.zeros([1, batch, UNITS], steps.dtype), [int(steps.shape[0])] * batch
    return tf.raw_ops.CudnnRNNV3(
        input=steps, input_h=zeros, input_c=zeros, params=vector, sequence_lengths=lengths, rnn_mode="lstm"
    )[0]


def judge(reading: Reading) -> Findings:
    yield from reading.judged("cuDNN")
