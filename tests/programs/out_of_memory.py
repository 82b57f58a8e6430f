"""Takes more than its logical device has."""

import tensorflow as tf

gpu = tf.config.list_physical_devices("GPU")[0]
tf.config.set_logical_device_configuration(gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=256)])
weights = tf.Variable(tf.zeros([16, 1024, 1024]), name="weights")
try:
    tf.zeros([128, 1024, 1024])
except tf.errors.ResourceExhaustedError:
    print("caught", weights.shape)
