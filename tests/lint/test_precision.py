"""What public code bases do, and is right: each of these was once found, and must not be again."""

from __future__ import annotations

import pytest

from linting import rules_in

RIGHT = {
    "a config that is handed on in one branch": """
import tensorflow.compat.v1 as tf
def make_session(config=None):
    if config is None:
        config = tf.ConfigProto()
        config.gpu_options.allow_growth = True
    return tf.InteractiveSession(config=config)
def get_session(config=None):
    return make_session(config=config)
mine = tf.ConfigProto(inter_op_parallelism_threads=1)
get_session(config=mine)
""",
    "a function for TensorFlow 1": """
import tensorflow as tf
def pin_gpu_tensorflow1(hvd):
    config = tf.ConfigProto()
    return tf.Session(config=config)
""",
    "a function inside of one for TensorFlow 1": """
def pin_gpu_tensorflow1_fn():
    def fn(hvd, tf, keras):
        config = tf.ConfigProto()
        keras.backend.set_session(tf.Session(config=config))
    return fn
""",
    "a test that newer versions skip": """
import pytest
import tensorflow as tf
@pytest.mark.skipif(parse(tf.__version__) >= parse('2.0.0'), reason='TensorFlow v1 tests')
class KerasTests:
    def __init__(self):
        self.config = tf.ConfigProto()
""",
    "strategies that a guide shows one after the other": """
import tensorflow as tf
strategy = tf.distribute.MirroredStrategy()
strategy = tf.distribute.MirroredStrategy(cross_device_ops=tf.distribute.ReductionToOneDevice())
with strategy.scope():
    model = tf.keras.Sequential()
model.compile('adam')
""",
    "growth that came too late is not lost to logical devices": """
import tensorflow as tf
gpus = tf.config.list_physical_devices('GPU')
tf.config.set_logical_device_configuration(gpus[0], [tf.config.LogicalDeviceConfiguration(memory_limit=1024)] * 2)
tf.config.list_logical_devices('GPU')
""",
    "a mask that is put back": """
import os
import tensorflow as tf
def four_gpus():
    before = os.environ.get("CUDA_VISIBLE_DEVICES")
    os.environ["CUDA_VISIBLE_DEVICES"] = "0,1,2,3"
    yield
    os.environ["CUDA_VISIBLE_DEVICES"] = before
""",
    "a mask that is put back after the devices were listed": """
import os
def prepare():
    before = os.getenv("CUDA_VISIBLE_DEVICES")
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    import tensorflow as tf
    tf.config.list_physical_devices("GPU")
    if before is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = before
""",
    "a branch for TensorFlow 1": """
import tensorflow as tf
def is_v2_0():
    return tf.__version__.startswith("2")
if not is_v2_0():
    config = tf.ConfigProto()
    tf.compat.v1.enable_eager_execution(config=config)
""",
    "growth for every number": """
import tensorflow as tf
gpus = tf.config.list_physical_devices("GPU")
for i in range(len(gpus)):
    tf.config.experimental.set_memory_growth(gpus[i], True)
""",
    "an import alone": """
import config
from config import set_memory_growth, __all__
__all__ = ["set_memory_growth"]
""",
    "a variable that a child process gets": """
import os, subprocess
import tensorflow as tf
tf.config.list_physical_devices('GPU')
os.environ['CUDA_VISIBLE_DEVICES'] = ''
subprocess.run(['python', 'other.py'])
""",
}


@pytest.mark.parametrize("text", RIGHT.values(), ids=RIGHT)
def test_nothing_is_found(text: str) -> None:
    assert rules_in(text) == []
