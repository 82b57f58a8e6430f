"""Has a function compiled by XLA, which has no operations on strings. On the CPU: simulated GPUs have no XLA."""

import tensorflow as tf


@tf.function(jit_compile=True)
def lengths(numbers):
    return tf.strings.length(tf.strings.as_string(numbers))


numbers = tf.ones([4])
try:
    with tf.device("/CPU:0"):
        lengths(numbers)
except tf.errors.InvalidArgumentError:
    print("caught")
