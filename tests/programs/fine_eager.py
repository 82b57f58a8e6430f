"""Computes eagerly on a GPU, joins strings on the CPU, and reads the result."""

import tensorflow as tf

with tf.device("/GPU:1"):
    matrix = tf.random.normal([32, 32])
    for _ in range(10):
        matrix = tf.tanh(matrix @ matrix)
print(tf.strings.join(["sum ", tf.strings.as_string(tf.reduce_sum(matrix) * 0)]).numpy().decode())
