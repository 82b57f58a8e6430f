"""Measures of probes on a TensorFlow that does not behave: what a probe must notice, made to happen."""

from __future__ import annotations

from typing import Any

from gpudiag.run import worker


def soft_placement_stays_on(argument: dict[str, Any]) -> bytes:
    """As where a library switches soft placement on again behind the program's back."""
    import tensorflow as tf

    tf.config.set_soft_device_placement = lambda enabled: None
    return worker.run_probe(argument)


def soft_placement_stays_off(argument: dict[str, Any]) -> bytes:
    import tensorflow as tf

    tf.config.set_soft_device_placement(False)
    tf.config.set_soft_device_placement = lambda enabled: None
    return worker.run_probe(argument)


def logs_no_placement(argument: dict[str, Any]) -> bytes:
    """As where the switch comes too late."""
    import tensorflow as tf

    tf.debugging.set_log_device_placement = lambda enabled: None
    return worker.run_probe(argument)


def ignores_the_device(argument: dict[str, Any]) -> bytes:
    """Everything asked for on another CPU runs on the first."""
    import tensorflow as tf

    device = tf.device
    tf.device = lambda name: device("/CPU:0")
    return worker.run_probe(argument)


def ignores_logical_devices(argument: dict[str, Any]) -> bytes:
    import tensorflow as tf

    tf.config.set_logical_device_configuration = lambda device, logical: None
    return worker.run_probe(argument)


def computes_wrongly(argument: dict[str, Any]) -> bytes:
    import tensorflow as tf

    multiply, add = tf.matmul, tf.add_n
    tf.matmul = lambda a, b: 2.0 * multiply(a, b)
    tf.add_n = lambda parts: 2.0 * add(parts)
    return worker.run_probe(argument)


def accepts_late_changes(argument: dict[str, Any]) -> bytes:
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads = lambda threads: None
    return worker.run_probe(argument)
