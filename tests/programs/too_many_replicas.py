"""A strategy over two GPUs of which one is hidden."""

import tensorflow as tf

tf.config.set_visible_devices(tf.config.list_physical_devices("GPU")[:1], "GPU")
strategy = tf.distribute.MirroredStrategy(["/GPU:0", "/GPU:1"])
with strategy.scope():
    variable = tf.Variable(1.0)
print(strategy.num_replicas_in_sync, variable.shape)
