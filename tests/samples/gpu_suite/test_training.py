"""Tests that need a GPU, one each; with more workers than GPUs they share them."""

import pytest
import tensorflow as tf

pytestmark = pytest.mark.gpudiag_gpus


@pytest.fixture
def weights():
    return tf.Variable(tf.zeros((4, 1)))


@pytest.mark.parametrize("batch", [16, 64, 256])
def test_loss_falls(weights, batch):
    x = tf.random.stateless_normal((batch, 4), seed=(1, 2))
    y = tf.reduce_sum(x, axis=1, keepdims=True)
    losses = []
    for _ in range(2):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((x @ weights - y) ** 2)
        weights.assign_sub(0.1 * tape.gradient(loss, weights))
        losses.append(float(loss))
    assert losses[1] < losses[0]


def test_product_on_the_gpu():
    product = tf.matmul(tf.ones((256, 256)), tf.ones((256, 256)))
    assert product.device.endswith("GPU:0")
    assert float(product[0, 0]) == 256


def test_one_gpu_is_seen():
    assert len(tf.config.list_physical_devices("GPU")) == 1
