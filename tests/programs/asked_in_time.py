"""Asks for the same as asked_in_vain.py and variables_in_vain.py, in ways that hold."""

import os
import subprocess
import sys
import threading

PROGRAM = "import os, tensorflow as tf; tf.random.normal([8, 8]); os.environ['TF_OF_MY_OWN_GPU']"
if "again" not in sys.argv:
    os.environ["LD_LIBRARY_PATH"] = f"{os.environ.get('LD_LIBRARY_PATH', '')}:/usr/local/cuda/lib64"
    os.execv(sys.executable, [sys.executable, *sys.argv, "again"])
os.environ["TF_GPU_THREAD_MODE"], os.environ["TF_GPU_THREAD_COUNT"] = "gpu_private", "2"
os.environ["TF_OF_MY_OWN_GPU"] = "1"
os.environ["TF_XLA_FLAGS"] = "--tf_xla_auto_jit=2"
subprocess.run("CUDA_VISIBLE_DEVICES=1 " + sys.executable + f' -c "{PROGRAM}"', shell=True, check=True)
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

tf.keras.mixed_precision.set_global_policy("mixed_float16")
for gpu in tf.config.list_physical_devices("GPU"):
    getattr(tf.config, "set_memory_growth", tf.config.experimental.set_memory_growth)(gpu, True)
tf.config.run_functions_eagerly(False)
with tf.device("/CPU:0"):
    limits = tf.constant([1.0, 2.0])
batch_size = 8 * tf.distribute.MirroredStrategy().num_replicas_in_sync


@tf.function
def deep(x):
    for _ in range(3):
        x = tf.tanh(x @ x * 0.01)
    return tf.exp(x)


def work(device: str) -> None:
    with tf.device(device):
        for _ in range(20):
            deep(tf.ones([8, 8]))


for thread in [threading.Thread(target=work, args=(f"/GPU:{number}",)) for number in range(2)]:
    thread.start()
    thread.join()
images = tf.data.Dataset.from_tensor_slices(np.ones([64, 8], "float32")).batch(batch_size)
images = images.apply(tf.data.experimental.prefetch_to_device("/GPU:0"))
layers = tf.keras.Sequential([tf.keras.layers.Dense(4), tf.keras.layers.Dense(1, dtype="float32")])
scaled = tf.keras.mixed_precision.LossScaleOptimizer(tf.keras.optimizers.SGD(0.1))
for batch in images:
    with tf.GradientTape() as tape:
        loss = scaled.scale_loss(tf.reduce_sum(layers(batch)))
    weights = layers.trainable_variables
    scaled.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))


@tf.function
def halve(x):
    return tf.numpy_function(lambda values: values / 2, [tf.tanh(x)], tf.float32) + 1.0


with tf.device("/CPU:0"):
    halve(tf.ones([8, 8]))
    with tf.device("/GPU:1"):
        tf.ones([8, 8]) @ tf.ones([8, 8])
    tf.tanh(tf.ones([8, 8]))
config = tf.compat.v1.ConfigProto(gpu_options=tf.compat.v1.GPUOptions(force_gpu_compatible=True))
config.gpu_options.allow_growth = True
with tf.Graph().as_default(), tf.compat.v1.Session(config=config) as session:
    assert isinstance(config, tf.compat.v1.ConfigProto)
    session.run(tf.constant(1.0))
