"""Environment variables of TensorFlow, CUDA and launchers whose names gpudiag knows."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from gpudiag.fix import Action, edit, export

WITHHELD = "(set)"
"""The placeholder for a value that is not stored, because it can contain a secret or an address."""

NO_JSON = "(no JSON)"
"""Stands for a value that was to be JSON and is not."""

MPS_CONTROL, MPS_PIPES = "nvidia-cuda-mps-control", "CUDA_MPS_PIPE_DIRECTORY"
MPS_FOLDER = "/tmp/nvidia-mps"  # noqa: S108
"""Where CUDA looks for the daemon of MPS if :data:`MPS_PIPES` is not set."""
PRELOAD, PRELOAD_FILE = "LD_PRELOAD", "/etc/ld.so.preload"
"""The variable and the file that name libraries for the loader to load into every program."""

FORCE_GROWTH = "TF_FORCE_GPU_ALLOW_GROWTH"
ALLOCATOR = "TF_GPU_ALLOCATOR"
THREAD_MODE = "TF_GPU_THREAD_MODE"
DEVICE_ORDER = "CUDA_DEVICE_ORDER"
LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL"

OVER_MEMORY = (
    FORCE_GROWTH,
    ALLOCATOR,
    "TF_CUDA_MALLOC_ASYNC_SUPPORTED_PREALLOC",
    "TF_DEVICE_MIN_SYS_MEMORY_IN_MB",
    "TF_PER_DEVICE_MEMORY_LIMIT_MB",
)
"""Variables that decide when and how much GPU memory TensorFlow takes, whatever options a program has set: other
allocators have no limit, and the reserve replaces ``per_process_gpu_memory_fraction`` (measured, 2.21)."""

JIT_BY_DEFAULT = "TF_FUNCTION_JIT_COMPILE_DEFAULT"
GRAPH_FLAGS = "TF_XLA_FLAGS"
_COMPILING = re.compile(
    r"(?<!\S)--?tf_xla_(?:auto_jit=(?:\d+|fusible|single-gpu\(\d+\))|enable_xla_devices(?:=(?:true|1))?)(?!\S)"
)


def mps_folder(variables: Mapping[str, str]) -> str:
    """Return the folder in which CUDA looks for the daemon of MPS."""
    return variables.get(MPS_PIPES) or MPS_FOLDER


def without_compiling(environ: Mapping[str, str]) -> dict[str, str | None]:
    """Return the changes of ``environ`` (None: cleared) with which XLA compiles only what a program asks it to.

    A function that XLA compiles as a whole no longer has operations on devices, so that no placement is logged. XLA's
    devices are the same GPUs under other names; a session that may use no GPU aborts with them (measured, 2.21). A
    value that TensorFlow refuses is left as it is.
    """
    flags = environ.get(GRAPH_FLAGS, "")
    changes: dict[str, str | None] = {GRAPH_FLAGS: left} if (left := _COMPILING.sub("", flags)) != flags else {}
    return {JIT_BY_DEFAULT: None, **changes} if JIT_BY_DEFAULT in environ else changes


PLUGINS = "TF_PLUGGABLE_DEVICE_LIBRARY_PATH"
"""The variable that names a library, or a folder of libraries, for devices that are not NVIDIA's; ``import tensorflow``
loads them."""


@dataclass(frozen=True)
class Accepted:
    """The values of a variable that are accepted; every other value is ignored, usually without a message."""

    words: tuple[str, ...]
    """The accepted words; () if :attr:`pattern` describes the values."""
    otherwise: str
    """The effect of every other value."""
    usual: str | None = None
    """The value to suggest if it is not clear what was meant; None: no suggestion."""
    any_case: bool = False
    empty: bool = True
    """True if the empty value counts as not set."""
    meanings: Mapping[str, str] = field(default_factory=dict)
    """Values that people write, in lower case, each with the value that they mean."""
    pattern: re.Pattern[str] | None = None
    """The pattern that the beginning of an accepted value matches, after spaces; for values that are not fixed
    words."""
    described: str = ""

    def reads(self, value: str) -> bool:
        """Return whether this value is accepted, or none is set."""
        if not value and self.empty:
            return True
        if self.pattern:
            return self.pattern.match(value.lstrip()) is not None
        return (value.lower() if self.any_case else value) in self.words

    def meant_by(self, value: str) -> str | None:
        """Return the value that was probably meant by this one; None if that is not clear."""
        written = value.strip().lower().replace("-", "_")
        known = {word.lower(): word for word in self.words}
        same_parts = [word for word in known if sorted(word.split("_")) == sorted(written.split("_"))]
        near = same_parts or difflib.get_close_matches(written, known, n=1)
        return self.meanings.get(written) or (known[near[0]] if near else None)

    @property
    def read(self) -> str:
        """The accepted values, in words."""
        return f"only {self.described or ' and '.join((', '.join(self.words[:-1]), self.words[-1]))} are read"


_SWITCH = {"": 1, "1": 1, "true": 1, "t": 1, "yes": 1, "y": 1, "on": 1, "0": 0, "false": 0, "f": 0, "no": 0, "off": 0}

ACCEPTED = {
    FORCE_GROWTH: Accepted(  # letter by letter (measured, 2.18 to 2.21)
        ("true", "false"),
        "all memory of each GPU is taken, as without it",
        usual="true",
        empty=False,
        meanings={word: ("false", "true")[on] for word, on in _SWITCH.items()},
    ),
    ALLOCATOR: Accepted(  # letter by letter
        ("cuda_malloc_async", "cuda_malloc", "memory_guard"), "TensorFlow uses its own allocator, as without it"
    ),
    THREAD_MODE: Accepted(  # measured, 2.21
        ("global", "gpu_private", "gpu_shared"), "no GPU device is made", any_case=True, empty=False
    ),
    # These two by the CUDA Programming Guide (CUDA Environment Variables), the third measured with 2.21.
    DEVICE_ORDER: Accepted(
        ("FASTEST_FIRST", "PCI_BUS_ID"),
        "expect the fastest GPU first, as without it",
        usual="PCI_BUS_ID",
        meanings={"pci": "PCI_BUS_ID", "bus_id": "PCI_BUS_ID", "fastest": "FASTEST_FIRST"},
    ),
    "CUDA_MODULE_LOADING": Accepted(("DEFAULT", "LAZY", "EAGER"), "expect the default, as without it"),
    "CUDA_LAUNCH_BLOCKING": Accepted(
        ("0", "1"),
        "kernels may run asynchronously, and errors show at a later operation",
        usual="1",
        meanings={word: str(on) for word, on in _SWITCH.items()},
    ),
    **dict.fromkeys(
        (GRAPH_FLAGS, "XLA_FLAGS"),
        Accepted(  # measured, 2.21
            (),
            "any other value is the name of a file with flags, and TensorFlow aborts if there is no such file",
            pattern=re.compile(r"-|[^\s=]{0,400}[/.]"),
            described="flags that begin with --",
        ),
    ),
    LOG_LEVEL: Accepted(
        (),
        "TensorFlow reads 0 and hides nothing",
        usual="1",
        pattern=re.compile(r"[+-]?\d"),
        described="whole numbers, 0 to 3,",
    ),
}
"""The accepted values of variables that are compared with a few words; causes and the lint use it."""


CLUSTER = "TF_CONFIG"
"""The variable with the cluster of a distributed program; it is stored with the number of tasks, without their
addresses."""

READ_BY_PYTHON = (CLUSTER, "TF_USE_LEGACY_KERAS")
"""Variables that TensorFlow reads from ``os.environ``."""

SETTINGS = frozenset(
    {
        "CUDA_CACHE_DISABLE",
        "CUDA_CACHE_MAXSIZE",
        "CUDA_DEVICE_ORDER",
        "CUDA_LAUNCH_BLOCKING",
        "CUDA_MODULE_LOADING",
        "CUDA_VISIBLE_DEVICES",
        "NVIDIA_DRIVER_CAPABILITIES",
        "NVIDIA_TF32_OVERRIDE",
        "NVIDIA_VISIBLE_DEVICES",
        "TF_CPP_MAX_VLOG_LEVEL",
        "TF_CPP_MIN_LOG_LEVEL",
        "TF_CPP_VMODULE",
        "TF_CUDA_MALLOC_ASYNC_SUPPORTED_PREALLOC",
        "TF_CUDNN_DETERMINISTIC",
        "TF_CUDNN_RNN_USE_AUTOTUNE",
        "TF_CUDNN_USE_AUTOTUNE",
        "TF_DETERMINISTIC_OPS",
        "TF_DEVICE_MIN_SYS_MEMORY_IN_MB",
        "TF_EAGER_ENABLE_SMALL_TENSOR_CPU_PINNING",
        "TF_ENABLED_DEVICE_TYPES",
        "TF_ENABLE_ONEDNN_OPTS",
        "TF_ENABLE_ZENDNN_OPTS",
        "TF_FORCE_GPU_ALLOW_GROWTH",
        "TF_FORCE_UNIFIED_MEMORY",
        "TF_GPU_ALLOCATOR",
        "TF_GPU_HOST_MEM_LIMIT_IN_MB",
        "TF_GPU_THREAD_COUNT",
        "TF_GPU_THREAD_MODE",
        "TF_MIN_GPU_MULTIPROCESSOR_COUNT",
        "TF_NUM_INTEROP_THREADS",
        "TF_NUM_INTRAOP_THREADS",
        "TF_PER_DEVICE_MEMORY_LIMIT_MB",
        "TF_PLUGGABLE_DEVICE_LIBRARY_PATH",
        "TF_USE_LEGACY_KERAS",
        "TF_XLA_FLAGS",
        "XLA_FLAGS",
    }
)
"""Settings that TensorFlow 2.21, the CUDA driver or the container runtime reads.

Every ``TF_`` name was found in the strings of the 2.21.0 wheel, and no other name in it is so similar to one of these
that it could be taken for a misspelling.
"""

PIECES = tuple(
    sorted(
        {f"{name.partition('_')[0]}_" for name in SETTINGS}
        | {max(name.split("_"), key=len) for name in SETTINGS}
        | {name.lower() for name in SETTINGS}
    )
)
"""Text fragments: a text without any of them has no setting, not even a misspelt one."""

CONTEXT = frozenset(
    {
        "CONDA_DEFAULT_ENV",
        "CONDA_PREFIX",
        "CUDA_CACHE_PATH",
        "CUDA_DEVICE_MEMORY_LIMIT",
        *(f"CUDA_DEVICE_MEMORY_LIMIT_{number}" for number in range(16)),
        "CUDA_HOME",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
        "CUDA_MPS_PIPE_DIRECTORY",
        "CUDA_PATH",
        "CUDA_VERSION",
        "HOROVOD_LOCAL_RANK",
        "HOROVOD_LOCAL_SIZE",
        "KERAS_BACKEND",
        "KERAS_HOME",
        "LD_LIBRARY_PATH",
        "LD_PRELOAD",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "MPI_LOCALNRANKS",
        "MPI_LOCALRANKID",
        "MV2_COMM_WORLD_LOCAL_RANK",
        "MV2_COMM_WORLD_LOCAL_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
        "PMIX_RANK",
        "PYTEST_XDIST_WORKER",
        "PYTEST_XDIST_WORKER_COUNT",
        "PYTHONHOME",
        "PYTHONNOUSERSITE",
        "PYTHONPATH",
        "RAY_JOB_ID",
        "RAY_RAYLET_PID",
        "SLURMD_NODENAME",
        "SLURM_GPUS",
        "SLURM_GPUS_ON_NODE",
        "SLURM_GPUS_PER_NODE",
        "SLURM_GPUS_PER_TASK",
        "SLURM_JOB_GPUS",
        "SLURM_JOB_ID",
        "SLURM_LOCALID",
        "SLURM_NTASKS",
        "SLURM_PROCID",
        "SLURM_STEP_GPUS",
        "SLURM_STEP_TASKS_PER_NODE",
        "TEST_TMPDIR",
        "TMP",
        "TMPDIR",
        "VIRTUAL_ENV",
        "WSL_DISTRO_NAME",
    }
)
"""Paths that decide what is loaded, and variables of launchers that say which part of a job this is."""

_GPU_WORDS = re.compile(
    r"(?:TF|XLA)_\w{0,99}(?:GPU|CUDA|XLA|MEMORY|GROWTH|ALLOC|MIXED_PRECISION|DEVICE|TF32|ONEDNN|DETERMINIS)\w{0,99}"
    r"|XLA_PYTHON_CLIENT_\w+|PYTORCH_\w{0,99}ALLOC\w{0,99}"
)
"""Patterns of names that look as if TensorFlow read them for its GPUs."""
_READ_TOO = re.compile(
    r"TF_(?:ALLOCATOR_ATTRIBUTES|ANNOTATE_MEMORY|AUTO_MIXED_PRECISION_GRAPH_REWRITE|BFC_MEMORY|CPU_ALLOCATOR|CUDA_PLATFORM"
    r"|CUDNN_|CUBLAS_|CUFFT_|DEBUG_CUDNN|DETERMINISTIC_|DEVICE_FOR|DISABLE_\w*DETERMINISM|ENABLE_GPU_GARBAGE|ENABLE_ONEDNN"
    r"|GPU_CUPTI_|GPU_DEBUG_OPS|JITRT_|LOG_XLA|MKL_ALLOC|ONEDNN_|SET_ONEDNN|OPTIMIZE_PRIMITIVE|USE_CUDNN|USE_CUBLASLT"
    r"|USE_DETERMINISTIC|XLA_BRIDGE|XLA_SHARDING|GRAPH_TO_HLO|XLA_)|XLA_(?!PYTHON_CLIENT_)"
)
"""Beginnings of such names that are in the strings of the 2.21.0 wheel, in addition to :data:`SETTINGS`."""


def is_read_by_nothing(name: str) -> bool:
    """Return whether a name looks like a variable of TensorFlow's for GPUs, and is in no file of the 2.21.0 wheel."""
    known = name in SETTINGS | CONTEXT or _READ_TOO.match(name) is not None
    return not known and _GPU_WORDS.fullmatch(name) is not None


_NEVER_READ = {
    # Met in public code, and in no file of the TensorFlow 2.21 wheel.
    "TF_CPP_MIN_VLOG_LEVEL": "TF_CPP_MAX_VLOG_LEVEL",
    "TF_GPU_ALLOW_GROWTH": "TF_FORCE_GPU_ALLOW_GROWTH",
    "TF_GPU_MEMORY_ALLOW_GROWTH": "TF_FORCE_GPU_ALLOW_GROWTH",
}
_LIMIT = edit(
    "tf.config.set_logical_device_configuration(gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=1024)])"
)
OTHER_PROGRAMS: Mapping[str, tuple[str, str, Mapping[str, Action]]] = {
    "XLA_PYTHON_CLIENT_": (
        "JAX",
        "jax",
        {
            "PREALLOCATE": export(FORCE_GROWTH, "true"),
            "MEM_FRACTION": _LIMIT,
            "ALLOCATOR": export(ALLOCATOR, "cuda_malloc_async"),
        },
    ),
    "JAX_PLATFORM": ("JAX", "jax", {}),
    "PYTORCH_": ("PyTorch", "torch", {"ALLOC_CONF": export(ALLOCATOR, "cuda_malloc_async")}),
}
"""Prefixes of variables that other programs read and TensorFlow does not (in no file of the 2.21 wheel): the program,
its module, and TensorFlow's equivalents of some."""

_MEANT = {
    "GROWTH": export(FORCE_GROWTH, "true"),
    "PRECISION": edit("tf.keras.mixed_precision.set_global_policy('mixed_float16')"),
    "FRACTION": _LIMIT,
    "LIMIT": _LIMIT,
    "TF32": edit("tf.config.experimental.enable_tensor_float_32_execution(True)"),
    "VISIBLE": export("CUDA_VISIBLE_DEVICES", "0"),
    "XLA": export(GRAPH_FLAGS, "--tf_xla_auto_jit=2"),
    "ALLOCATOR": export(ALLOCATOR, "cuda_malloc_async"),
}


def instead_of(name: str) -> Action | None:
    """Return TensorFlow's equivalent of a variable that it does not read; None if there is none."""
    return next((instead for part, instead in _MEANT.items() if part in name), None)


_NEAR = 0.9
"""The similarity above which an unknown name counts as a misspelling; no name in the TensorFlow 2.21 wheel is caught by
it."""


def misspelling_of(name: str) -> str | None:
    """Return the setting that ``name`` is a misspelling of, or None."""
    if name in SETTINGS | CONTEXT:
        return None
    words = sorted(name.upper().split("_"))
    turned = [
        setting for setting in sorted(SETTINGS) if sorted(setting.split("_")) == words
    ]  # the same words in another order
    near = turned or difflib.get_close_matches(name.upper(), SETTINGS, n=1, cutoff=_NEAR)
    return _NEVER_READ.get(name) or (near[0] if near else None)
