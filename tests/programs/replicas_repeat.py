"""Gives both replicas of a strategy the same batch, and trains a model whose weights are on the CPU.

Its tf.data is in debug mode, and one of its functions calls Python.
"""

import tensorflow as tf

tf.data.experimental.enable_debug_mode()
strategy = tf.distribute.MirroredStrategy()
images = tf.data.Dataset.from_tensor_slices(tf.random.normal([32, 8])).batch(8)
with strategy.scope():
    weights = tf.Variable(tf.ones([8, 8]), aggregation=tf.VariableAggregation.MEAN)


@tf.function
def train(batch):
    strategy.run(lambda part: weights.assign_sub(0.01 * tf.transpose(part) @ part), args=(batch,))
    return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(tf.reduce_sum, args=(batch,)), axis=None)


for batch in images:
    train(batch)

with tf.device("/CPU:0"):
    layers = [tf.Variable(tf.random.normal([8, 8])) for _ in range(4)]


@tf.function
def step(batch):
    for layer in layers:
        batch = tf.tanh(batch @ layer)
    return batch


for batch in images:
    with tf.device("/GPU:0"):
        step(batch)


@tf.function
def halve(batch):
    return tf.numpy_function(lambda values: values / 2, [tf.tanh(batch)], tf.float32) + 1.0


for batch in images:
    halve(batch)
strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(lambda: tf.ones([4])), axis=None)
