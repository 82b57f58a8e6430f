"""Imports a module that hides all GPUs, and starts two processes, one of which chooses among its one GPU twice."""

import os
import subprocess
import sys

CHILD = """
import os
import tensorflow as tf
rank = int(os.environ["LOCAL_RANK"])
tf.config.set_visible_devices(tf.config.list_physical_devices("GPU")[rank:rank + 1], "GPU")
tf.ones([8, 8]) @ tf.ones([8, 8])
"""
for rank in (0, 1):
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": str(rank), "LOCAL_RANK": str(rank)}
    subprocess.run([sys.executable, "-c", CHILD], env=environment, check=True)

import hides_gpus  # noqa: E402, F401
import tensorflow as tf  # noqa: E402

tf.ones([8, 8]) @ tf.ones([8, 8])
