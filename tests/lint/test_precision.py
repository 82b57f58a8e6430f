"""What public code bases do, and is right: each of these was once found, and must not be again."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpudiag.lint import check, rule
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
    "a second call that returns at once": """
import tensorflow as tf
class Devices:
    ready = False
    @classmethod
    def setup(cls, growth=True):
        if cls.ready:
            return
        for gpu in tf.config.list_physical_devices('GPU'):
            tf.config.experimental.set_memory_growth(gpu, growth)
        cls.ready = True
class Trainer:
    def __init__(self):
        Devices.setup()
    def run(self, dataset):
        Devices.setup()
        return dataset
trainer = Trainer()
trainer.run(tf.data.Dataset.range(3))
""",
    "a second call of a function whose result is kept": """
import functools
import tensorflow as tf
@functools.lru_cache(maxsize=None)
def gpus():
    found = tf.config.list_physical_devices('GPU')
    tf.config.set_visible_devices(found[0], 'GPU')
    return found
gpus()
print(tf.zeros([1]), gpus())
""",
    "a call that sets again what the call before has set": """
import tensorflow as tf
def setup():
    if not LOCK.acquire(blocking=False):
        return
    tf.config.threading.set_inter_op_parallelism_threads(2)
setup()
x = tf.zeros([1])
setup()
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
    "branches that ask for TensorFlow 1 in other words": """
import tensorflow as tf
if tf2.enabled():
    pass
else:
    tf.Session(config=tf.ConfigProto())
if os.environ.get('TF2_BEHAVIOR') != '1':
    tf.Session(config=tf.ConfigProto(gpu_options=tf.GPUOptions(allow_growth=True)))
if hasattr(tf, 'enable_eager_execution'):
    tf.enable_eager_execution()
if not tf.executing_eagerly():
    tf.InteractiveSession(config=tf.ConfigProto())
""",
    "a variable that is not None where it is set": """
import os
import tensorflow as tf
def set_gpu(ids):
    if ids is None:
        os.environ['CUDA_VISIBLE_DEVICES'] = ''
    else:
        os.environ['CUDA_VISIBLE_DEVICES'] = ids
set_gpu(None)
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
    "the Keras that tf.keras is, chosen after the import: it is read at the first use of tf.keras": """
import os
import tensorflow as tf
os.environ['TF_USE_LEGACY_KERAS'] = '1'
model = tf.keras.Sequential()
""",
    "a pool whose work is not known": """
import multiprocessing
import tensorflow as tf
from elsewhere import work
tf.zeros([1])
multiprocessing.Pool().map(work, [1])
""",
    "a config that something else fills": """
import tensorflow as tf
from elsewhere import fill
for gpu in tf.config.list_physical_devices('GPU'):
    tf.config.experimental.set_memory_growth(gpu, True)
config = tf.compat.v1.ConfigProto()
fill(config)
tf.compat.v1.Session(config=config)
""",
    "growth by the environment, beside a session": """
import os
os.environ['TF_FORCE_GPU_ALLOW_GROWTH'] = 'true'
import tensorflow as tf
for gpu in tf.config.list_physical_devices('GPU'):
    tf.config.experimental.set_memory_growth(gpu, True)
tf.compat.v1.Session(config=tf.compat.v1.ConfigProto())
""",
    "soft placement for eager operations, beside a session": """
import tensorflow as tf
session = tf.compat.v1.Session(graph=tf.Graph())
tf.config.set_soft_device_placement(False)
x = tf.zeros([2])
""",
    "a function as a default": """
import tensorflow as tf
def count(listing=None):
    listing = listing or tf.config.list_physical_devices
    return len(listing('GPU'))
count()
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


@pytest.mark.parametrize(
    "line", ["if os.path.exists(tf1_folder):", "if args.compat:", "if hasattr(args, 'gpus'):", "def resnet101v1():"]
)
def test_what_asks_for_no_version_hides_nothing(line: str) -> None:
    """Names that have ``tf1``, ``v1`` or ``compat`` in them are not yet a branch for TensorFlow 1."""
    text = f"import tensorflow as tf\n{line}\n    config = tf.ConfigProto()\n    tf.Session(config=config)\n"
    assert set(rules_in(text)) == {"removed_api"}


def test_a_helper_that_other_files_call_may_leave_the_gpu_to_them(tmp_path: Path) -> None:
    helper = "import horovod.tensorflow as hvd\ndef start():\n    hvd.init()  # horovod\n"
    (tmp_path / "helper.py").write_text(helper)
    (tmp_path / "main.py").write_text("import helper\nimport gpus\nhelper.start()\ngpus.choose()\n")
    (tmp_path / "gpus.py").write_text("def choose(hvd):\n    return hvd.local_rank()\n")
    assert not check.check([tmp_path], rule.known()).found
    assert rules_in(helper) == ["processes_share_a_gpu"]
