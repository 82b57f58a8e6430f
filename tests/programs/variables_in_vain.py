"""Gives variables to processes that do not get them; each line that does so ends in a word in capitals."""

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

tf.random.normal([8, 8])
