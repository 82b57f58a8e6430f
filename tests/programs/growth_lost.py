"""Asks for growth and splits a GPU: growth is lost, and get_memory_growth still says True."""

import tensorflow as tf

gpus = tf.config.list_physical_devices("GPU")
for gpu in gpus:
    tf.config.experimental.set_memory_growth(gpu, True)
cpus = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpus[0], [tf.config.LogicalDeviceConfiguration()] * 2)
print(float(tf.reduce_sum(tf.ones([8, 8]))), tf.config.experimental.get_memory_growth(gpus[0]))
