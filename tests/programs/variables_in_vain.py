"""Gives variables to processes that do not get them, and options to devices and sessions that are made already.

Each line that does so ends in a word in capitals.
"""

import os
import subprocess
import sys

PROGRAM = "import tensorflow as tf; tf.random.normal([8, 8])"
os.putenv("CUDA_VISIBLE_DEVICES", "1")  # PUT
subprocess.run([sys.executable, "-c", PROGRAM], env=os.environ.copy(), check=True)
own = {"PATH": os.environ["PATH"], "TF_XLA_FLAGS": "tf_xla_auto_jit=2"}
subprocess.run([sys.executable, "-c", PROGRAM], env=own, check=False)  # DASHES
os.system("export TF_FORCE_GPU_ALLOW_GROWTH=true")  # SHELL
os.unsetenv("CUDA_VISIBLE_DEVICES")
import tensorflow as tf  # noqa: E402

changed, unchanged = tf.compat.v1.ConfigProto(), tf.compat.v1.ConfigProto(log_device_placement=True)
server = tf.distribute.Server.create_local_server()
tf.config.set_soft_device_placement(True)
first, second = tf.config.list_physical_devices("GPU")
tf.config.experimental.set_memory_growth(first, True)  # SERVER
tf.config.experimental.set_memory_growth(second, True)  # SECOND
with tf.Graph().as_default():
    tf.compat.v1.Session(config=unchanged).run(tf.constant(1.0))
    session = tf.compat.v1.Session(config=changed)  # CHANGED
    changed.allow_soft_placement = True
    session.run(tf.constant(1.0))
with tf.device("/GPU:1"), tf.device("/GPU:0"):  # OUTER
    tf.random.normal([8, 8])
