"""A test that configures TensorFlow its own way, and so runs in a process of its own."""

import pytest
import tensorflow as tf


@pytest.mark.gpudiag_gpus
@pytest.mark.gpudiag_isolated(timeout=120)
def test_two_logical_devices(gpudiag_placement, gpudiag_memory):
    gpu = tf.config.list_physical_devices("GPU")[0]
    half = tf.config.LogicalDeviceConfiguration(memory_limit=512)
    tf.config.set_logical_device_configuration(gpu, [half, half])
    with (
        gpudiag_placement() as placement,
        gpudiag_memory("GPU:1") as memory,
        tf.device("GPU:1"),
    ):
        tf.matmul(tf.ones((256, 256)), tf.ones((256, 256)))
    assert placement.ops("MatMul").on("GPU:1")
    placement.assert_no_cpu_fallback()
    memory.assert_peak_below("64MiB")
