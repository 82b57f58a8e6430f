"""Asks for much in ways that nothing looks at; each line that does so ends in a word in capitals."""

import contextlib
import json
import os
import threading

os.environ["TF_GPU_THREAD_COUNT"] = "4"  # COUNT
os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # JAX
os.environ["TF_GPU_MEMORY_PERCENT"] = "30"  # INVENTED
os.environ["NVIDIA_VISIBLE_DEVICES"] = "1"  # CONTAINER
os.environ["LD_LIBRARY_PATH"] = "/usr/local/cuda/lib64"  # LOADER
import numpy as np
import tensorflow as tf

for gpu in tf.config.list_physical_devices("gpu"):  # LIST
    tf.config.experimental.set_memory_growth(gpu, True)
with contextlib.suppress(AttributeError):
    tf.config.set_virtual_device_configuration(None, [])  # ABSENT
os.environ["TF_XLA_FLAGS"] = "--tf_xla_auto_jit=2"  # FLAGS
config = tf.compat.v1.ConfigProto()  # RECORD
config.gpu_options.allow_growth = True
tf.device("/GPU:1")  # CALLED
with tf.device("/GPU:1"):  # EMPTY

    @tf.function
    def double(x):
        return x @ x


def work() -> None:
    for _ in range(20):
        double(tf.ones([8, 8]))


with tf.device("/GPU:1"):  # THREAD
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()

images = tf.data.Dataset.from_tensor_slices(np.ones([64, 8], "float32"))
images = images.apply(tf.data.experimental.prefetch_to_device("/GPU:0")).batch(16)  # PREFETCH
layer = tf.keras.layers.Dense(4)
tf.keras.mixed_precision.set_global_policy("mixed_float16")  # POLICY
for batch in images:
    layer(batch)
tf.distribute.MultiWorkerMirroredStrategy().run(lambda: tf.constant(1.0))
cluster = {"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}}
os.environ["TF_CONFIG"] = json.dumps(cluster)  # CLUSTER
os.environ["TF_DETERMINISTIC_OPS"] = "1"  # DETERMINISM
