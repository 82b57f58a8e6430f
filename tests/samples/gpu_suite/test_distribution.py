"""Tests that need two GPUs, whole ones."""

import pytest
import tensorflow as tf


@pytest.mark.gpudiag_gpus(count=2)
def test_replicas_on_two_gpus():
    strategy = tf.distribute.MirroredStrategy()
    assert strategy.num_replicas_in_sync == 2
    sums = strategy.reduce("sum", strategy.run(lambda: tf.constant(21.0)), axis=None)
    assert float(sums) == 42


@pytest.mark.gpudiag_gpus(count=2, memory="8GiB")
def test_large_tensors_fit():
    for name in ("GPU:0", "GPU:1"):
        with tf.device(name):
            assert tf.zeros((1 << 28,)).device.endswith(name)  # 1 GiB


@pytest.mark.gpudiag_gpus(count=4)
def test_four_gpus():
    assert len(tf.config.list_physical_devices("GPU")) == 4
