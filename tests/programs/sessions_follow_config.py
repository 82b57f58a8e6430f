"""Sets in tf.config what its sessions of TensorFlow 1 get, sets it again, and makes a session in a fork, too."""

import contextlib
import os

import tensorflow as tf

gpus = tf.config.list_physical_devices("GPU")
tf.compat.v1.disable_eager_execution()
for _ in range(2):
    tf.config.experimental.set_memory_growth(gpus[1], True)
    tf.config.set_visible_devices(gpus[1], "GPU")
    with tf.compat.v1.Session() as session:
        session.run(tf.random.normal([8, 8]))
        session.run(tf.constant([1.0]) + 1.0)
child = os.fork()
if not child:
    with contextlib.suppress(tf.errors.OpError):
        tf.compat.v1.Session()
    os._exit(0)
os.waitpid(child, 0)
