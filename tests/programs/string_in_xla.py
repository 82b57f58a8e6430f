"""Has a function compiled whole by XLA, which has no operations on strings."""

import tensorflow as tf


@tf.function(jit_compile=True)
def lengths(numbers):
    return tf.strings.length(tf.strings.as_string(numbers))


try:
    lengths(tf.ones([4]))
except tf.errors.InvalidArgumentError:
    print("caught")
