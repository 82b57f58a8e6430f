"""GPUs that work and are not used as the program meant."""

from __future__ import annotations

from collections.abc import Callable

from conftest import Gpudiag
from corpus import Item

_LOG = ("--log", "app.log", "host", "discovery")
_MACHINE = "2x16GiB"
_HIDDEN = {"CUDA_VISIBLE_DEVICES": "-1"}

_TOO_LATE = """
import tensorflow as tf
gpus = tf.config.list_physical_devices("GPU")
weights = tf.zeros([4, 4])
"""
_GROWTH_AFTER_LIMIT = """
import tensorflow as tf
gpus = tf.config.list_physical_devices("GPU")
limit = tf.config.LogicalDeviceConfiguration(memory_limit=100)
tf.config.set_logical_device_configuration(gpus[0], [limit])
tf.config.experimental.set_memory_growth(gpus[0], True)
"""
_FIRST_GPU = """
import tensorflow as tf
gpus = tf.config.list_physical_devices("GPU")
tf.config.experimental.set_memory_growth(gpus[0], True)
"""
_ON_A_GPU = """
import tensorflow as tf
tf.debugging.set_log_device_placement(True)
with tf.device("/GPU:0"):
    tf.ones([2, 2]) @ tf.ones([2, 2])
"""
_HIDES_THEM_ITSELF = f"""
import os
os.environ["CUDA_VISIBLE_DEVICES"] = ""
{_ON_A_GPU}
"""
_SETS_GROWTH_ITSELF = """
import os
os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] = "1"
import tensorflow as tf
tf.zeros([2])
"""
_NO_POOLS = """
[[gpu]]
memory_pools = false
"""


def _running(source: str, **variables: str) -> Callable[[Gpudiag], None]:
    def prepare(gpudiag: Gpudiag) -> None:
        gpudiag.run_program(_MACHINE, source, **variables)

    return prepare


ITEMS = (
    Item(
        51,
        "Configuration after initialisation: memory growth",
        rule="configured_too_late",
        fix="TF_FORCE_GPU_ALLOW_GROWTH=true",
        machine=_MACHINE,
        options=_LOG,
        prepare=_running(f"{_TOO_LATE}\ntf.config.experimental.set_memory_growth(gpus[0], True)"),
    ),
    Item(
        51,
        "Configuration after initialisation: visible devices",
        rule="configured_too_late",
        fix="directly after import tensorflow",
        machine=_MACHINE,
        options=_LOG,
        prepare=_running(f"{_TOO_LATE}\ntf.config.set_visible_devices(gpus[1], 'GPU')"),
    ),
    Item(
        53,
        "Memory growth together with a logical-device limit",
        rule="settings_exclude_each_other",
        fix="remove set_memory_growth",
        machine=_MACHINE,
        options=_LOG,
        prepare=_running(_GROWTH_AFTER_LIMIT),
    ),
    Item(
        54,
        "gpus[0] on an empty list",
        rule="element_of_no_gpus",
        fix="if not (gpus := tf.config.list_physical_devices('GPU'))",
        after="mask_hides_all",
        machine=_MACHINE,
        variables=_HIDDEN,
        options=_LOG,
        prepare=_running(_FIRST_GPU, **_HIDDEN),
    ),
    Item(
        55,
        "GPU requested, CPU used, nothing said",
        rule="cpu_instead_of_gpu",
        fix="set_soft_device_placement(False)",
        after="mask_hides_all",
        machine=_MACHINE,
        variables=_HIDDEN,
        options=_LOG,
        prepare=_running(_ON_A_GPU, **_HIDDEN),
    ),
    Item(
        55,
        "GPU requested, CPU used: the program hides the GPU from itself",
        rule="program_ran_elsewhere",
        fix="os.environ['CUDA_VISIBLE_DEVICES']",
        machine=_MACHINE,
        options=_LOG,
        prepare=_running(_HIDES_THEM_ITSELF),
    ),
    Item(
        56,
        "TF_FORCE_GPU_ALLOW_GROWTH with a value TF does not parse",
        rule="growth_not_read",
        fix="export TF_FORCE_GPU_ALLOW_GROWTH=true",
        machine=_MACHINE,
        variables={"TF_FORCE_GPU_ALLOW_GROWTH": "True"},
    ),
    Item(
        56,
        "TF_FORCE_GPU_ALLOW_GROWTH=1, set by the program",
        rule="growth_not_read",
        fix="export TF_FORCE_GPU_ALLOW_GROWTH=true",
        machine=_MACHINE,
        options=_LOG,
        prepare=_running(_SETS_GROWTH_ITSELF),
    ),
    Item(
        58,
        "TF_GPU_ALLOCATOR misspelt",
        rule="allocator_not_known",
        fix="export TF_GPU_ALLOCATOR=cuda_malloc_async",
        machine=_MACHINE,
        variables={"TF_GPU_ALLOCATOR": "cuda_malloc_Async"},
    ),
    Item(
        58,
        "TF_GPU_ALLOCATOR=cuda_malloc_async where unsupported",
        rule="allocator_not_supported",
        fix="unset TF_GPU_ALLOCATOR",
        machine=_NO_POOLS,
        variables={"TF_GPU_ALLOCATOR": "cuda_malloc_async"},
        tried="works",
    ),
    Item(
        59,
        "TF_CPP_MIN_LOG_LEVEL hides the reason",
        rule="log_level_hides_reason",
        fix="unset TF_CPP_MIN_LOG_LEVEL",
        after="mask_hides_all",
        machine=_MACHINE,
        variables={"TF_CPP_MIN_LOG_LEVEL": "3", **_HIDDEN},
    ),
)
