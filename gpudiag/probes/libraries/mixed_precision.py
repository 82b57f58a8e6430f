"""A training step of Keras in mixed precision changes the weights on every GPU as one in float32 does on the CPU.

What it does
    Makes a small Keras model with the policy `mixed_float16` and an optimiser that scales the loss, trains it for
    one step on each GPU, and compares its weights with those after a step in float32 on the CPU.
Why it matters
    Mixed precision is the usual way to the tensor cores. A gradient that underflows, a loss scale that is never
    removed, or a step that is skipped because of one infinity changes no shape and raises nothing.
What to do
    Use Keras with TensorFlow as its backend: `unset KERAS_BACKEND`. If the weights differ on one GPU alone, trust
    no result of it: `nvidia-smi -q -d ECC`. To train without it:
    `keras.mixed_precision.set_global_policy("float32")`.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

import msgspec

from gpudiag import probe
from gpudiag.probe import Context, Findings
from gpudiag.probes import comparison
from gpudiag.probes.comparison import HALF, Computation, compare, normal

PROBE = probe.Probe(needs=comparison.NEEDS, scope=probe.Scope.ALL_GPUS, sampled=True)


class Fault(comparison.LibraryFaults):
    keras_not_imported = probe.fail(
        "{package} cannot be imported: {error}",
        means="A program meets it when it first uses tf.keras; TensorFlow's own operations work without Keras.",
        do=probe.SEE_THE_CAUSE,
    )


class Reading(comparison.LibraryReading, kw_only=True):
    """The change of the weights by one training step."""

    package: str = ""
    """The module that is ``tf.keras``, if it cannot be imported."""
    raised: probe.Raised | None = None
    """The error that the import of ``tf.keras`` raised."""


def measure(ctx: Context) -> Reading:
    tf = ctx.tf

    def backend() -> str:
        return str(tf.keras.backend.backend())

    try:
        keras = tf.keras
        other = backend().removeprefix("tensorflow")
    except Exception:
        package = "tf_keras" if os.environ.get("TF_USE_LEGACY_KERAS") in ("1", "true", "True") else "keras"
        reading = compare(ctx, Reading, (), ("a step of Keras",))
        # The module's own words, which tf.keras may replace; if it can be imported by itself, those of tf.keras.
        raised = ctx.attempt(lambda: importlib.import_module(package)) or ctx.attempt(backend)
        return msgspec.structs.replace(reading, package=package, raised=raised)
    if other:
        return compare(ctx, Reading, (), (f"a step of Keras, whose backend is not TensorFlow ({other})",))

    def step(inputs: Any, targets: Any, first: Any, second: Any) -> Any:
        tf.config.set_soft_device_placement(True)  # as Keras needs it: its counters are integers, which stay on the CPU
        on_cpu = inputs.device.endswith("CPU:0")
        policy = keras.mixed_precision.Policy("float32" if on_cpu else "mixed_float16")
        hidden = keras.layers.Dense(16, activation="relu", dtype=policy)
        model = keras.Sequential([hidden, keras.layers.Dense(4, dtype=policy)])
        model.build(inputs.shape)
        for layer, weights in zip(model.layers, (first, second), strict=True):
            layer.kernel.assign(weights)
        optimizer = keras.optimizers.SGD(0.1)
        if not on_cpu:
            optimizer = keras.mixed_precision.LossScaleOptimizer(optimizer)
        with tf.GradientTape() as tape:
            computed = model(inputs, training=True)
            if not on_cpu and computed.dtype != tf.float16:
                raise TypeError(f"under the policy mixed_float16 Keras computed in {computed.dtype.name}")
            made = tf.cast(computed, tf.float32)
            loss = tf.reduce_mean((made - tf.cast(targets, tf.float32)) ** 2)
            scaled = loss if on_cpu else optimizer.scale_loss(loss)
        weights = model.trainable_weights
        values = [getattr(weight, "value", weight) for weight in weights]
        before = [tf.identity(value) for value in values]
        optimizer.apply_gradients(zip(tape.gradient(scaled, values), weights, strict=True))
        # Not the weights, of which a step changes so little that a wrong gradient would be within the rounding.
        return tf.concat([tf.reshape(new - old, [-1]) for new, old in zip(values, before, strict=True)], 0)

    inputs = normal(32, 8), normal(32, 4, seed=1), normal(8, 16, seed=2) / 3, normal(16, 4, seed=3) / 4
    return compare(ctx, Reading, (Computation("a step", step, inputs, "float32", HALF, "float32"),))


def judge(reading: Reading) -> Findings:
    if reading.raised is not None:
        yield Fault.keras_not_imported.found(package=reading.package, error=reading.raised.brief)
    yield from reading.judged("Keras in mixed precision")
