"""Tables of what TensorFlow's API does to its devices, for reading or tracing a program.

Names are written without ``tensorflow.`` and in their newest form (:func:`canonical`). The names that initialise
devices were measured with 2.21: an operation, a tensor, a variable, a listing of logical devices.
"""

from __future__ import annotations

import re
from functools import cache

_SAME = re.compile(r"\A(?:compat\.v[12]\.|python\.(?:framework|client|eager|ops|distribute)\.)+|\Apython\.")
_RENAMED = {
    "config.experimental.list_physical_devices": "config.list_physical_devices",
    "config.experimental.list_logical_devices": "config.list_logical_devices",
    "config.experimental.get_visible_devices": "config.get_visible_devices",
    "config.experimental.set_visible_devices": "config.set_visible_devices",
    "config.experimental.get_virtual_device_configuration": "config.get_logical_device_configuration",
    "config.experimental.set_virtual_device_configuration": "config.set_logical_device_configuration",
    "config.experimental.VirtualDeviceConfiguration": "config.LogicalDeviceConfiguration",
    "config.set_virtual_device_configuration": "config.set_logical_device_configuration",
    "config.VirtualDeviceConfiguration": "config.LogicalDeviceConfiguration",
    "config.set_memory_growth": "config.experimental.set_memory_growth",
    "InteractiveSession": "Session",
    "client.device_lib.list_local_devices": "device_lib.list_local_devices",
    "distribute.experimental.MultiWorkerMirroredStrategy": "distribute.MultiWorkerMirroredStrategy",
    "distribute.experimental.CentralStorageStrategy": "distribute.experimental.CentralStorageStrategy",
    "contrib.distribute.MirroredStrategy": "distribute.MirroredStrategy",
}


@cache
def canonical(name: str) -> str:
    """Return the newest form of a name: ``tensorflow.compat.v1.Session`` is ``Session``; other names stay."""
    if not name.startswith("tensorflow."):
        return name
    short = _SAME.sub("", name[len("tensorflow.") :])
    return _RENAMED.get(short, short)


GROWTH = "config.experimental.set_memory_growth"
GROWTH_FOR_EACH = f"for gpu in tf.config.list_physical_devices('GPU'): tf.{GROWTH}(gpu, True)"
"""The line that sets growth for every GPU; it needs no variable of the program."""
VISIBLE = "config.set_visible_devices"
LOGICAL = "config.set_logical_device_configuration"
LOGICAL_DEVICE = "config.LogicalDeviceConfiguration"
PHYSICAL = "config.list_physical_devices"
LISTS = frozenset({PHYSICAL, "config.get_visible_devices", "config.list_logical_devices"})
"""Calls that return a list of devices."""

SETTERS = {
    "config.set_soft_device_placement": "enabled",
    "debugging.set_log_device_placement": "enabled",
    "config.experimental.enable_tensor_float_32_execution": "enabled",
    "config.threading.set_inter_op_parallelism_threads": "num_threads",
    "config.threading.set_intra_op_parallelism_threads": "num_threads",
    "config.optimizer.set_jit": "enabled",
    "config.experimental.set_device_policy": "device_policy",
    "config.run_functions_eagerly": "run_eagerly",
}
"""Functions that set one value, and the name of their only parameter."""


def in_tf_config(option: str, value: object) -> str:
    """Return the line of tf.config that does what an option of a ConfigProto does; empty if there is none."""
    if option == "allow_growth":
        return GROWTH_FOR_EACH
    if option == "visible_device_list":
        chosen = ", ".join(f"gpus[{entry.strip()}]" for entry in str(value).split(",") if entry.strip().isdecimal())
        return f"gpus = tf.config.list_physical_devices('GPU'); tf.config.set_visible_devices([{chosen}], 'GPU')"
    if option == "device_count" and isinstance(value, dict) and value.get("GPU") == 0:
        return "tf.config.set_visible_devices([], 'GPU')"
    if option in ("per_process_gpu_memory_fraction", "virtual_devices"):
        return (
            "tf.config.set_logical_device_configuration(gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=...)])"
        )
    if option in ("allow_soft_placement", "log_device_placement"):
        setter = "config.set_soft" if "soft" in option else "debugging.set_log"
        return f"tf.{setter}_device_placement({value})"
    return ""


DEVICE_SETTERS = frozenset({GROWTH, VISIBLE, LOGICAL})
BEFORE_DEVICES = DEVICE_SETTERS | {
    "config.threading.set_inter_op_parallelism_threads",
    "config.threading.set_intra_op_parallelism_threads",
}
"""Setters that raise RuntimeError once TensorFlow has made its devices."""

FIX_ALLOCATORS = frozenset({"device_lib.list_local_devices", "test.is_gpu_available", "test.gpu_device_name"})
"""Calls that make the GPU devices with default options, outside the eager context: options set later are ignored.

Measured with 2.21; ``test.gpu_device_name`` calls ``device_lib.list_local_devices``.
"""
SERVERS = frozenset(f"{of}.Server{how}" for of in ("train", "distribute") for how in ("", ".create_local_server"))
"""Calls that make the GPU devices of a process with the options of their own ``config``, or with the defaults."""
STRATEGIES = frozenset(
    f"distribute.{name}"
    for name in (
        "MirroredStrategy",
        "MultiWorkerMirroredStrategy",
        "OneDeviceStrategy",
        "experimental.CentralStorageStrategy",
    )
)
_NO_OPERATION = r"""
    as_dtype|\w+_initializer|colocate_with|container|control_\w+|count_up_to|custom_gradient|device|executing_\w+|function
    |grad_pass_through|gradients|group|hessians|import_graph_def|init\w*|inside_function|nondifferentiable_batch_function
    |\w*placeholder\w*|py_func|recompute_grad|\w+_partitioner|\w+_scope|tuple|type_spec_from_value|wrap_function|case|cond
    |(?:assert|assign|delete|dimension|disable|enable|get|is|load|make|no|register|report|reset|set|variable)_\w+|assign
    |\w*_variables\w*|add_\w*(?:collections?|names?|ops)|switch_case|while_loop|hparams|layers|broadcast_static_shape
"""
_OPERATION = re.compile(
    r"""
    (?!(?:NO_OPERATION)\Z)[a-z]\w+ | Variable | SparseTensor | TensorArray | RaggedTensor\.from_\w+
    | (?:math|nn|linalg|image|strings|signal|sparse|ragged|bitwise|sets|audio|quantization|raw_ops|experimental\.numpy)
      \.(?!is_numeric|experimental_|placeholder)(?:[a-z]\w+|SparseTensor)
    | random\.(?!set_|get_)(?:experimental\.)?(?:[a-z]\w+|Generator\.\w+) | dtypes\.\w*cast
    | io\.(?:decode|encode|parse|read|serialize|deserialize)_(?!proto)\w+ | io\.write_file
    | data\.Dataset\.\w+ | data\.(?:experimental\.)?\w+Dataset | data\.experimental\.make_\w+_dataset
    | lookup\.KeyValueTensorInitializer | summary\.create_file_writer | saved_model\.load
    | keras\.(?:Variable | models\.load_model | (?:ops|random)\.[a-z]\w+ | random\.SeedGenerator
      | backend\.(?:constant|variable|zeros|ones|random_\w+) | metrics\.[A-Z]\w+ | optimizers\.(?!Optimizer)[A-Z]\w+
      | (?:utils|preprocessing)\.\w+_dataset_from_\w+ | (?:preprocessing\.)?(?:image|text)_dataset_from_directory
      | applications\.(?:\w+\.)?[A-Z]\w+ | layers\.(?:Dropout|Random[A-Z]\w+|TextVectorization|StringLookup))
    """.replace("NO_OPERATION", _NO_OPERATION)
    .replace(r"\w+", r"\w{1,60}")
    .replace(r"\w*", r"\w{0,60}"),
    re.VERBOSE,
)
"""Calls that run an operation, or make a tensor or a variable, in an eager program (2.21: of 200 calls of these
namespaces, each in a process of its own, those that made the devices)."""
INITIALISE = frozenset({"config.list_logical_devices", *STRATEGIES, "device"}) | {
    "config.experimental.get_memory_info",
    "config.experimental.reset_memory_stats",
}
"""Calls, beside operations, that make the devices of an eager program; ``device`` if it is entered by with."""


@cache
def makes_devices(name: str) -> bool:
    """Return whether a call makes the devices of an eager program, after which they cannot be changed."""
    return name in INITIALISE or _OPERATION.fullmatch(name) is not None


WEIGHTED = re.compile(
    r"keras\.layers\.(?=\w+\Z)(?:\w*(?:Conv|LSTM|GRU)|\w*(?:Dense|RNN|Attention)\Z|\w+Normalization\Z"
    r"|(?:Embedding|Bidirectional|PReLU)\Z)|keras\.applications\.(?:\w+\.)?[A-Z]\w+\Z|keras\.models\.load_model\Z"
)
"""Layers with weights, which are variables, and models of such layers."""
QUERY = frozenset({PHYSICAL, "config.get_visible_devices", "Session"}) | {
    *("config.get_soft_device_placement", "config.get_logical_device_configuration", "config.optimizer.get_jit"),
    *("config.experimental.get_device_details", "config.threading.get_inter_op_parallelism_threads"),
}
"""Calls that initialise the CUDA driver, which then reads CUDA_VISIBLE_DEVICES."""

WITHOUT_EAGER = frozenset({"disable_eager_execution", "disable_v2_behavior"})

_WITHOUT_GPU_KERNEL = """
    edit_distance image.combined_non_max_suppression image.draw_bounding_boxes image.extract_glimpse
    image.sample_distorted_bounding_box linalg.eig linalg.eigvals linalg.logm linalg.sqrtm nn.ctc_beam_search_decoder
    nn.ctc_greedy_decoder nn.fractional_max_pool quantization.quantize random.poisson random.shuffle sets.difference
    sets.intersection sparse.add sparse.reduce_sum sparse.softmax
"""
WITHOUT_GPU_KERNEL = frozenset(_WITHOUT_GPU_KERNEL.split())
"""Functions that run on the CPU inside of ``tf.device('/GPU:0')`` (measured, 2.21, soft placement)."""

READ_AT_IMPORT = frozenset({"TF_CPP_MIN_LOG_LEVEL", "TF_ENABLED_DEVICE_TYPES", "TF_ENABLE_ONEDNN_OPTS"})
"""Variables that ``import tensorflow`` reads (2.21, measured). TF_USE_LEGACY_KERAS is not one: tf.keras reads it at its
first use (2.21: set after the import, tf.keras asked for tf_keras)."""
READ_BY_KERAS = frozenset({"KERAS_BACKEND", "KERAS_HOME"})
"""Variables that ``import keras`` reads (keras/src/backend/config.py, 3.15)."""
READ_AT_QUERY = frozenset(
    {
        "CUDA_VISIBLE_DEVICES",
        "CUDA_DEVICE_ORDER",
        "NVIDIA_TF32_OVERRIDE",
        "TF_MIN_GPU_MULTIPROCESSOR_COUNT",
        "TF_XLA_FLAGS",
    }
)
"""Variables that the first query of the devices reads. TF_XLA_FLAGS: measured with an invalid flag, at which TensorFlow
ends then (2.21)."""
READ_WITH_DEVICES = frozenset(
    {
        "TF_FORCE_GPU_ALLOW_GROWTH",
        "TF_GPU_ALLOCATOR",
        "TF_GPU_THREAD_MODE",
        "TF_GPU_THREAD_COUNT",
        "TF_CUDA_MALLOC_ASYNC_SUPPORTED_PREALLOC",
        "TF_DEVICE_MIN_SYS_MEMORY_IN_MB",
        "TF_PER_DEVICE_MEMORY_LIMIT_MB",
        "TF_FORCE_UNIFIED_MEMORY",
        "TF_GPU_HOST_MEM_LIMIT_IN_MB",
        "TF_NUM_INTEROP_THREADS",
        "TF_NUM_INTRAOP_THREADS",
        "XLA_FLAGS",
    }
)
READ_BY_STEPS = frozenset({"TF_DETERMINISTIC_OPS", "TF_CUDNN_DETERMINISTIC"})
"""Variables that the first kernel that asks for them reads, once for the process: a step of training asks."""
CLUSTERS = frozenset(
    {
        "distribute.MultiWorkerMirroredStrategy",
        "distribute.cluster_resolver.TFConfigClusterResolver",
        "distribute.experimental.ParameterServerStrategy",
        "distribute.ParameterServerStrategy",
    }
)
"""Calls that read TF_CONFIG, once (measured, 2.21: a strategy stays one of a single worker)."""

REMOVED = {
    "ConfigProto": "tf.compat.v1.ConfigProto",
    "GPUOptions": "tf.compat.v1.GPUOptions",
    "Session": "tf.compat.v1.Session",
    "InteractiveSession": "tf.compat.v1.InteractiveSession",
    "config.set_memory_growth": "tf.config.experimental.set_memory_growth",
    "config.get_memory_growth": "tf.config.experimental.get_memory_growth",
    "config.get_memory_info": "tf.config.experimental.get_memory_info",
    "config.experimental_list_devices": "tf.config.list_logical_devices()",
    "config.set_virtual_device_configuration": "tf.config.set_logical_device_configuration",
    "config.VirtualDeviceConfiguration": "tf.config.LogicalDeviceConfiguration",
    "config.experimental.set_logical_device_configuration": "tf.config.set_logical_device_configuration",
    "config.experimental.LogicalDeviceConfiguration": "tf.config.LogicalDeviceConfiguration",
    "config.gpu.set_per_process_memory_growth": "tf.config.experimental.set_memory_growth, for each GPU",
    "config.gpu.set_per_process_memory_fraction": "tf.config.set_logical_device_configuration, for each GPU",
    "config.enable_tensor_float_32_execution": "tf.config.experimental.enable_tensor_float_32_execution",
    "config.set_log_device_placement": "tf.debugging.set_log_device_placement",
    "config.experimental.set_soft_device_placement": "tf.config.set_soft_device_placement",
    "keras.mixed_precision.experimental.set_policy": "tf.keras.mixed_precision.set_global_policy",
    "keras.mixed_precision.experimental.Policy": "tf.keras.mixed_precision.Policy",
    "train.experimental.enable_mixed_precision_graph_rewrite": "tf.keras.mixed_precision.set_global_policy",
    "keras.utils.multi_gpu_model": "tf.distribute.MirroredStrategy()",
    "keras.backend.set_session": "tf.config.experimental.set_memory_growth (Keras 3 has no session)",
    "keras.backend.get_session": "tf.compat.v1.Session (Keras 3 has no session)",
    "contrib.distribute.MirroredStrategy": "tf.distribute.MirroredStrategy()",
    "enable_eager_execution": "tf.compat.v1.enable_eager_execution",
}
"""Names below ``tensorflow.`` that 2.18 to 2.21 do not have, and their replacements (``dir()`` of each, 2.21)."""

DEVICE_TYPES = frozenset({"CPU", "GPU", "TPU", "TPU_SYSTEM", "XPU", "DML", "NPU", "HPU"})
"""Types in a device name: TensorFlow's own, and those of plug-ins."""


DEVICE_COUNT_KEYS = DEVICE_TYPES
"""The valid keys of ``ConfigProto.device_count``, which are case-sensitive."""
_TYPE = re.compile(r"/?(?:device:)?(?:XLA_)?([A-Za-z_]+?)S?(?::(?:\d+|\*))?", re.IGNORECASE)


def device_type(written: str) -> str | None:
    """Return the device type that is meant by ``gpu``, ``GPU:0``, ``/device:GPU:0``, ``gpus`` or ``cuda``."""
    found = _TYPE.fullmatch(written.strip())
    meant = found[1].upper() if found else ""
    meant = "GPU" if meant in ("CUDA", "NVIDIA") else meant
    return meant if meant in DEVICE_TYPES else None
