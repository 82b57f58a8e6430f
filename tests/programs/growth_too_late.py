"""Sets growth after the first tensor, and catches the error."""

import tensorflow as tf

first = tf.ones([8, 8])
try:
    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)
except RuntimeError as error:
    print("ignored:", error)
print(float(tf.reduce_sum(first)))
