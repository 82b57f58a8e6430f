"""Makes much that it gives to nothing; each line that does so ends in a word in capitals."""

import os
import sys

import numpy as np

os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "false")  # KEPT
import tensorflow as tf

policy = tf.keras.mixed_precision.Policy("mixed_float16")  # POLICY
print(policy.compute_dtype)
read_policy = tf.keras.mixed_precision.Policy("mixed_bfloat16")
table_policy = tf.keras.mixed_precision.Policy("float32")
used_policy = tf.keras.mixed_precision.Policy("float32")
scaled = tf.keras.mixed_precision.LossScaleOptimizer(tf.keras.optimizers.SGD(0.1))  # SCALING
options = tf.data.Options()  # OPTIONS
options.experimental_slack = True
merged_options = tf.data.Options()
used_options = merged_options.merge(tf.data.Options())
limit = tf.config.LogicalDeviceConfiguration(memory_limit=512)  # LIMIT
limits = [tf.config.LogicalDeviceConfiguration(memory_limit=512)]
other_config = tf.compat.v1.ConfigProto(gpu_options=tf.compat.v1.GPUOptions(force_gpu_compatible=True))
gpu_options = tf.compat.v1.GPUOptions(allow_growth=True)  # RECORD


def step(images):
    return tf.nn.relu(images @ tf.transpose(images))


fast_step = tf.function(step, jit_compile=True)  # FUNCTION
kept_step = tf.function(step, jit_compile=True)
tf.function(step)  # DROPPED


@tf.function
def helper(images):
    return images + 1.0


def double(images):
    return images + images


steps = {"single": step, "double": tf.function(double)}


images = tf.data.Dataset.from_tensor_slices(np.ones([64, 8], "float32")).batch(16).with_options(used_options)
images.prefetch(2)  # PREFETCH
list(images.take(1))
if "--everything" in sys.argv:
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("GPU")[0], limits)
    tf.compat.v1.Session(config=other_config).run(kept_step(1.0))
reduction = tf.distribute.HierarchicalCopyAllReduce()  # REDUCTION
strategy = tf.distribute.MirroredStrategy(cross_device_ops=tf.distribute.NcclAllReduce())
strategy.scope()  # SCOPE
input_options = tf.distribute.InputOptions(experimental_fetch_to_device=False)  # INPUT
unread = strategy.experimental_distribute_dataset(images)  # UNREAD
with strategy.scope():
    layer = tf.keras.layers.Dense(4, dtype=used_policy)
    with tf.device("/CPU:0"):  # TABLE
        table = tf.Variable(tf.ones([8, 4], table_policy.variable_dtype))
with tf.device("/CPU:0"):
    on_the_host = tf.Variable(tf.ones([8, 4]))
for batch in strategy.experimental_distribute_dataset(images):
    strategy.run(lambda part, scale: layer(steps["single"](part)[:, :8]) * scale, args=(batch, tf.constant(2.0)))
tf.keras.mixed_precision.set_global_policy("mixed_float16")  # UNSCALED
half = tf.keras.layers.Dense(4)
half.build([8, 8])
tf.keras.optimizers.SGD(0.1).apply([tf.ones([8, 4]), tf.ones([4])], half.trainable_variables)
tf.cast(on_the_host, read_policy.compute_dtype)
