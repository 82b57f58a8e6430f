"""The messages that gpudiag knows: what TensorFlow, CUDA, their libraries and test runners print, and what it means.

A line is turned into events here, before anything is cut away; who judges asks for events and has no pattern of its
own. A message is one entry of this table: its texts, as they are printed, with ``{field}`` where they vary.

    {x}    anything, up to 300 characters      {x:d}  digits             {x:w}  a word
    {x:s}  anything without a space            {x:v}  a version          {x:q}  anything without a quotation mark
    {x:b}  a PCI bus id                        {x:l}  all inside brackets {x:p}  an absolute path
    {}     anything that does not matter

A text matches whole words. So a line can match only if it has all words of the text, and that is looked up before any
pattern is tried: hundreds of messages cost hardly more than ten. What no text can express is a ``pattern``, with
``words`` of which a line must have one.

The texts are those of TensorFlow 2.18-2.21 where nothing else is said; older ones where users still meet them.
"""

from __future__ import annotations

import re
import string
from collections import defaultdict
from dataclasses import dataclass
from enum import Enum
from functools import cache, lru_cache

from gpudiag.plaintext import one_line


class Worth(str, Enum):
    """What a message is worth to somebody who looks for a fault."""

    HARMLESS = "harmless"
    """It looks like an error and is none."""
    MISLEADING = "misleading"
    """It names another fault than the one it follows from."""
    FAULT = "fault"
    SIGN = "sign"
    """It tells what happened, good or bad."""


@dataclass(frozen=True, eq=False)
class Message:
    """A kind of line, whatever its figures."""

    name: str
    worth: Worth
    meaning: str
    """For a harmless or misleading one, what is said of it; a few words on the others."""
    texts: tuple[str, ...]
    """The first that matches gives the fields."""
    seen: str
    """Releases of TensorFlow, or the program, that print it."""
    pattern: re.Pattern[str] | None = None
    """In place of texts, for what no text can express; :attr:`words` are then given by hand."""
    words: tuple[str, ...] = ()
    """Of a pattern: a line that it matches has one of these words (letters and ``_``), in lower case."""


@dataclass(frozen=True, eq=False)
class Event:
    """A message in a line."""

    message: Message
    fields: dict[str, str]
    line: str
    """The whole line."""
    text: str
    """The part of it that matched, each space once."""

    def __getitem__(self, field: str) -> str:
        """Return a field; "" where this text of the message has none."""
        return self.fields.get(field, "")


_TABLE: list[Message] = []


def _add(
    worth: Worth,
    name: str,
    *texts: str,
    meaning: str = "",
    seen: str = "2.18-2.21",
    pattern: str = "",
    words: tuple[str, ...] = (),
) -> Message:
    message = Message(name, worth, meaning, texts, seen, re.compile(pattern) if pattern else None, words)
    _TABLE.append(message)
    return message


def _harmless(name: str, *texts: str, meaning: str, seen: str = "2.18-2.21") -> Message:
    return _add(Worth.HARMLESS, name, *texts, meaning=meaning, seen=seen)


def _misleading(name: str, *texts: str, meaning: str, seen: str = "2.18-2.21") -> Message:
    return _add(Worth.MISLEADING, name, *texts, meaning=meaning, seen=seen)


def _fault(name: str, *texts: str, meaning: str = "", seen: str = "2.18-2.21") -> Message:
    return _add(Worth.FAULT, name, *texts, meaning=meaning, seen=seen)


def _sign(name: str, *texts: str, meaning: str = "", seen: str = "2.18-2.21") -> Message:
    return _add(Worth.SIGN, name, *texts, meaning=meaning, seen=seen)


# --- harmless --------------------------------------------------------------------------------------------------------

NOT_A_FAILURE = _harmless(
    "allocation_not_a_failure",
    "ran out of memory trying to allocate {} The caller indicates that this is not a failure",
    meaning="TensorFlow tried a faster way that needs more memory, and took another",
)
_harmless(
    "registered_twice",
    "Unable to register {factory:w} factory: Attempting to register factory for plugin {:w} when one has already been "
    "registered",
    "computation placer already registered",
    meaning="the build registers it twice and the first one is used; a missing GPU has another cause",
)
_harmless(
    "no_tensorrt",
    "TF-TRT Warning: Could not find TensorRT",
    "Cannot dlopen some TensorRT libraries",
    "Could not load dynamic library 'libnvinfer{:q}'",
    meaning="TensorRT is optional, and TensorFlow's own wheels are built without it",
)
_harmless(
    "profiler_not_permitted",
    "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES",
    meaning="it concerns the profiler alone, which needs NVreg_RestrictProfilingToAdminUsers=0 for the kernel module, "
    "or docker run --cap-add SYS_ADMIN",
)
_harmless(
    "no_numa_node",
    "successful NUMA node read from SysFS had negative value",
    "could not open file to read NUMA node",
    "Your kernel may have been built without NUMA support",
    meaning="the machine, often a virtual one, does not say which processor is nearest to the GPU; node 0 is assumed",
)
_harmless(
    "cpu_instructions",
    "This TensorFlow binary is optimized to use available CPU instructions",
    "This TensorFlow binary is optimized with oneAPI",
    "To enable the following instructions: {:w}",
    meaning="it concerns the speed of operations on the CPU",
)
_harmless(
    "onednn_on",
    "oneDNN custom operations are on",
    meaning="it concerns operations on the CPU; TF_ENABLE_ONEDNN_OPTS=0 ends it",
)
_harmless(
    "logged_before_absl",
    "All log messages before absl::InitializeLog() is called are written to STDERR",
    meaning="it says where the lines below it go",
)
_harmless(
    "end_of_data",
    "Local rendezvous is aborting with status: OUT_OF_RANGE: End of sequence",
    meaning="a data set has come to its end",
)
_harmless(
    "performance_gains",
    "The caller indicates that this is not a failure, but this may mean that there could be performance gains",
    meaning="an algorithm that needs less memory is used instead",
)
_harmless(
    "no_delay_kernel",
    "Skipping the delay kernel, measurement accuracy will be reduced",
    meaning="it concerns the choice of algorithms",
)
_harmless(
    "delay_kernel_timed_out",
    "Delay kernel timed out: measured time has sub-optimal accuracy",
    meaning="it concerns the choice of algorithms",
    seen="2.21",
)
_harmless(
    "no_crash_reproducer",
    "disabling MLIR crash reproducer",
    meaning="it concerns reports on crashes of the compiler",
)
_harmless(
    "registers_spilled",
    "Registers are spilled to local memory",
    meaning="it concerns the speed of one compiled function",
)

# --- misleading ------------------------------------------------------------------------------------------------------

NO_CUDA_DRIVERS = _misleading(
    "no_cuda_drivers",
    "Could not find cuda drivers on your machine, GPU will not be used",
    meaning="it is not about the driver: the CUDA runtime library libcudart.so.12 could not be opened",
)
_misleading(
    "cuinit_303",
    "Failed call to cuInit: UNKNOWN ERROR (303)",
    meaning="the driver's library libcuda.so.1 could not be opened",
)
_misleading(
    "libraries_mentioned_above",
    "Cannot dlopen some GPU libraries. Please make sure the missing libraries mentioned above",
    meaning="none is mentioned above: TF_CPP_VMODULE=dso_loader=1 makes TensorFlow name them",
)
_misleading(
    "cudnn_version_unknown",
    "Failed to determine cuDNN version {} CUDNN_STATUS_INTERNAL_ERROR",
    meaning="the library libcudnn.so.9 could not be opened",
)
_misleading(
    "growth_overridden",
    "Overriding {setting:w} setting because the TF_FORCE_GPU_ALLOW_GROWTH environment variable is set",
    meaning="the variable decides, whatever the program sets",
)
_misleading(
    "cuda_not_enabled",
    "The requested device appears to be a GPU, but CUDA is not enabled",
    meaning="TensorFlow found no GPU that it can use, or was built without CUDA",
)

# --- on the way to a GPU ---------------------------------------------------------------------------------------------

LIBRARY_OPENED = _sign("library_opened", "Successfully opened dynamic library {library:s}")
LIBRARY_NOT_OPENED = _fault(
    "library_not_opened",
    "Could not load dynamic library '{library:q}'; dlerror: {reason}; LD_LIBRARY{}",
    "Could not load dynamic library '{library:q}'; dlerror: {reason}",
    meaning="at TF_CPP_VMODULE=dso_loader=1, and of TensorFlow up to 2.15 at any level",
)
LIBRARY_ASKED_FOR = _fault(
    "library_asked_for",
    "{library:w}.so.{version:v}'; dlerror:",
    "{library:w}.so.{version:v}: cannot open shared object file",
    "{library:w}.so.{version:v}. Error: {}",
    meaning="something asks for a library that the loader does not find",
)
NO_LIBCUDA_LINK = _fault("no_libcuda_link", "libcuda.so: cannot open shared object file", seen="cuDNN 8")
CUINIT_FAILED = _fault("cuinit_failed", "Failed call to cuInit: {error}")
GPU_NOT_COUNTED = _fault("device_count_failed", "could not retrieve CUDA device count{}")
LIBRARIES_MISSING = _fault("libraries_missing", "Cannot dlopen some GPU libraries")
CUINIT_CALL_FAILED = _fault("cuinit_call_failed", "failed call to cuInit", "Failed call to cuInit")
GPU_TYPE_DISABLED = _fault(
    "gpu_type_disabled",
    "Device factory 'GPU' disabled by TF_ENABLED_DEVICE_TYPES",
    "Device factory 'GPU' disabled",
)
GPU_IGNORED = _fault("gpu_ignored", "Ignoring visible gpu device{}")
TOO_FEW_CORES = _fault(
    "too_few_cores",
    "Ignoring visible gpu device (device: {:d}, name: {name}, pci bus id: {pci:b}, {}) with core count: {cores:d}. "
    "The minimum required count is {least:d}",
)
TOO_LOW_CAPABILITY = _fault(
    "too_low_capability",
    "Ignoring visible gpu device (device: {:d}, name: {name}, pci bus id: {pci:b}, {}) with Cuda compute capability "
    "{has:v}. The minimum required Cuda capability is {least:v}",
)
DEVICE_CREATED = _sign(
    "device_created",
    "{thread:d} gpu_device.cc:{:d}] Created device {:s}device:GPU:{number:d} with {mib:d} MB memory:{} pci bus id: "
    "{pci:b}",
    "Created device {:s}device:GPU:{number:d} with {mib:d} MB memory:{} pci bus id: {pci:b}",
)
DEVICE_BUSY = _fault(
    "device_busy",
    "CUDA-capable device(s) is/are busy or unavailable",
    "all CUDA-capable devices are busy or unavailable",
    "busy or unavailable",
)
SYSTEM_NOT_READY = _fault("system_not_ready", "CUDA_ERROR_SYSTEM_NOT_READY", "SYSTEM_NOT_READY")
TWO_DRIVER_VERSIONS = _fault(
    "two_driver_versions",
    "kernel version {module:s} does not match DSO version {library:s}",
    "Driver/library version mismatch",
    "NVML/RM version mismatch",
)
DRIVER_TOO_OLD = _fault("driver_too_old", "driver version is insufficient for CUDA runtime version")
GPU_FAILED = _fault(
    "gpu_failed",
    "CUDA_ERROR_ECC_UNCORRECTABLE",
    "GPU is lost",
    "fallen off the bus",
    meaning="the GPU, its memory, its power or its connection has failed",
)
CUDA_UNKNOWN = _fault("cuda_unknown", "CUDA_ERROR_UNKNOWN", meaning="CUDA has no name for the error")

# --- settings --------------------------------------------------------------------------------------------------------

GROWTH_NOT_PARSED = _fault(
    "growth_not_parsed",
    'TF_FORCE_GPU_ALLOW_GROWTH environment variable is set but could not be parsed: "{value:q}"',
)
NO_MEMORY_POOLS = _fault(
    "no_memory_pools",
    "TF_GPU_ALLOCATOR=cuda_malloc_async isn't currently supported",
    "Failed to get default CUDA pool",
    "Failed to create CUDA pool",
    "Failed to get CUDA pool",
    "Failed to set CUDA pool",
    "Failed to create {:w} CUDA pool",
    "Failed to get {:w} CUDA pool",
    "Failed to set {:w} CUDA pool",
)
CONFIGURED_TOO_LATE = _add(
    Worth.FAULT,
    "configured_too_late",
    pattern=r"(?P<what>[A-Z][\w ]{0,40}?) cannot be modified after (?:being initialized|initialization)",
    words=("modified",),
)
SETTINGS_EXCLUDED = _fault(
    "settings_excluded",
    "Cannot set memory growth on device when virtual devices configured",
    "It's invalid to set per_process_gpu_memory_fraction when virtual_devices is set",
)
THREAD_MODE_INVALID = _fault("thread_mode_invalid", "Invalid gpu_thread_mode: {value:s}")
NO_PLUGGABLE_LIBRARY = _fault(
    "no_pluggable_library", "to load pluggable device libraries from does not exist.: '{value:q}'"
)
NO_CPU_FACTORY = _fault("no_cpu_factory", "CPU Factory not registered")
FLAGS_REFUSED = _fault(
    "flags_refused",
    "Unknown flag in {unknown_in:w}: {flags}",
    "Unknown flags in {unknown_in:w}: {flags}",
    'Could not open file "{file:q}" to read flags for environment variable "{file_in:w}"',
    "Couldn't interpret value {value:m} for flag {name:w}",
)

# --- placement -------------------------------------------------------------------------------------------------------

MIRRORED_DEVICES = _sign(
    "mirrored_devices",
    "Using MirroredStrategy with devices ({devices:l})",
    "Using MirroredStrategy with remote devices ({devices:l})",
)
NON_GPU_REPLICAS = _fault("non_gpu_replicas", "There are non-GPU devices in `tf.distribute.Strategy`")
DEVICE_NOT_AVAILABLE = _fault(
    "device_not_available", "assigned to {:s}device:GPU:{number:d}{:s} but available devices are [{devices:l}]"
)
DEVICE_NOT_SATISFIED = _fault(
    "device_not_satisfied",
    "Could not satisfy device specification '{:q}device:GPU:{number:d}'{} All available devices [{devices:l}]",
    "Could not satisfy explicit device specification '{:q}device:GPU:{number:d}'{} All available devices [{devices:l}]",
    "Could not satisfy device specification '{:q}device:GPU:{number:d}'",
    "Could not satisfy explicit device specification '{:q}device:GPU:{number:d}'",
)
DEVICE_UNKNOWN = _fault("device_unknown", "GPU:{number:d} unknown device", "GPU:{number:d}{} unknown device")
NO_DEVICE_FOR_SPEC = _fault("no_device_for_spec", "Unable to find any devices for spec {:s}device:GPU:{number:d}")
INDEX_NOT_VISIBLE = _fault(
    "index_not_visible",
    "'visible_device_list' listed an invalid Device id '{asked:q}'",
    "'visible_device_list' listed an invalid GPU id '{asked:q}'",
    "Could not parse entry in 'visible_device_list': '{asked:q}'",
)
NO_SUCH_ELEMENT = _fault(
    "no_such_element", "IndexError: list index out of range", "IndexError: tuple index out of range", seen="Python"
)

# --- code and libraries ----------------------------------------------------------------------------------------------

NO_MACHINE_CODE = _fault(
    "no_machine_code", "not built with CUDA kernel binaries compatible with compute capability {has:v}"
)
PTX_REFUSED = _fault(
    "ptx_refused",
    "CUDA_ERROR_INVALID_PTX",
    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
    "PTX version {:s} does not support",
)
NO_CODE_FOR_GPU = _fault(
    "no_code_for_gpu", "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"
)
PTXAS_TOO_OLD = _fault(
    "ptxas_too_old",
    "ptxas fatal : Value '{target:w}' is not defined",
    "ptxas fatal: Value '{target:w}' is not defined",
    seen="CUDA",
)
STRAY_ACCESS = _fault(
    "stray_access",
    *(
        f"CUDA_ERROR_{name}"
        for name in (
            "ILLEGAL_ADDRESS",
            "MISALIGNED_ADDRESS",
            "ILLEGAL_INSTRUCTION",
            "INVALID_ADDRESS_SPACE",
            "INVALID_PC",
            "LAUNCH_FAILED",
        )
    ),
    "an illegal memory access was encountered",
    "an illegal instruction was encountered",
    "unspecified launch failure",
    seen="CUDA",
)
CUDNN_OLDER = _fault("cudnn_older", "Loaded runtime CuDNN library: {found:v} but source was compiled with: {needed:v}")
NO_LIBDEVICE = _fault("no_libdevice", "Can't find libdevice directory", "libdevice not found at")
NOT_TENSORFLOW = _fault(
    "not_tensorflow",
    "module 'tensorflow' has no attribute",
    "cannot import name '{:w}' from 'tensorflow",
    "cannot import name '{:w}' from tensorflow",
    "No module named 'tensorflow.{:q}'",
    "do not import tensorflow from its source directory",
    meaning="something else of that name was imported",
    seen="Python",
)
MODULE_LACKS = _fault(
    "module_lacks",
    "cannot import name '{:q}' from partially initialized module '{module:q}'{}({file:p})",
    "cannot import name '{:q}' from '{module:q}'{}({file:p})",
    "cannot import name '{:q}' from partially initialized module '{module:q}'",
    "cannot import name '{:q}' from '{module:q}'",
    "module '{module:q}' has no attribute",
    "No module named '{module:q}'; '{:q}' is not a package",
    seen="Python",
)

# --- memory ----------------------------------------------------------------------------------------------------------

DEVICE_FULL = _fault(
    "device_full",
    "failed to allocate {:s} ({:d} bytes) from device",
    "failed. Status: out of memory",
    "CUDA_ERROR_OUT_OF_MEMORY",
    meaning="the GPU itself has no memory left",
)
POOL_FULL = _fault(
    "pool_full",
    "OOM when allocating tensor",
    ") ran out of memory trying to allocate",
    meaning="what TensorFlow took of the GPU's memory is used up",
)
LIMIT_REACHED = _fault("limit_reached", "Not enough memory to allocate {} within provided limit")
NO_HANDLE = _fault(
    "no_handle",
    *(
        f"{{:w}} create {{:w}} handle: {of}_STATUS_{status}"
        for of in ("CUBLAS", "CUDNN", "CUSOLVER", "CUSPARSE", "CURAND", "CUFFT")
        for status in ("NOT_INITIALIZED", "ALLOC_FAILED", "INTERNAL_ERROR")
    ),
    meaning="a library of NVIDIA's could not start on the GPU",
)
JAX_FULL = _fault("jax_full", "XlaRuntimeError: RESOURCE_EXHAUSTED", "JaxRuntimeError: RESOURCE_EXHAUSTED", seen="JAX")
TORCH_FULL = _fault(
    "torch_full",
    "OutOfMemoryError: CUDA out of memory",
    "RuntimeError: CUDA out of memory",
    "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED",
    "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED",
    seen="PyTorch",
)
JAX_AT_WORK = _sign(
    "jax_at_work", *(f"-packages{mark}{name}{mark}" for mark in "/\\" for name in ("jax", "jaxlib")), seen="JAX"
)
TORCH_AT_WORK = _sign("torch_at_work", *(f"-packages{mark}torch{mark}" for mark in "/\\"), seen="PyTorch")

# --- several GPUs ----------------------------------------------------------------------------------------------------

NCCL_SYSTEM_ERROR = _add(
    Worth.FAULT,
    "nccl_system_error",
    pattern=r"(?i)NCCL(?:(?!NCCL).){0,300}(?:unhandled )?system error|ncclSystemError",
    words=("nccl", "ncclsystemerror"),
    seen="NCCL",
)
NCCL_WARNING = _add(
    Worth.FAULT,
    "nccl_warning",
    pattern=r"(?i)NCCL WARN(?P<what>(?:(?!NCCL WARN).){0,300})",  # a log may repeat the words without end
    words=("nccl",),
    seen="NCCL",
)
GPUS_EXCHANGE = _sign(
    "gpus_exchange",
    "NCCL INFO",
    *(f"all{mark}reduce{end}" for mark in ("", "_", "-", " ") for end in ("", "s")),
    *(f"All{mark}Reduce{end}" for mark in ("", "-", " ") for end in ("", "s")),
    meaning="GPUs are about to exchange data",
    seen="2.18-2.21, NCCL",
)
NOT_REGISTERED = _fault(
    "not_registered",
    "TensorFlow device GPU:{number:d} was not registered",
    meaning="said by the worker that has no GPU, when the others have one (measured, 2.21)",
)

# --- the user's own program ------------------------------------------------------------------------------------------

SLURM_HIDES = _fault("slurm_hides", "NoDevFiles", meaning="what Slurm writes into the mask of a job step without GPUs")
_ENTRY = r"(?:-?\d+|(?:GPU|MIG)-[\w-]+|NoDevFiles)"
MASK_PRINTED = _add(
    Worth.SIGN,
    "mask_printed",
    pattern=r"CUDA_VISIBLE_DEVICES['\"\])]*\s*(?:=|:|,|is set to)\s*['\"]?"
    rf"(?P<value>{_ENTRY}(?:,\s*{_ENTRY})*|(?=['\"]))",
    words=("cuda_visible_devices",),
    seen="programs",
)
LOCAL_RANK = _sign("local_rank", "local_rank", seen="Horovod")
XDIST_WORKER = _add(Worth.SIGN, "xdist_worker", pattern=r"\[gw(?P<worker>\d+)\]", words=("gw",), seen="pytest-xdist")
TEST_SKIPPED = _add(
    Worth.SIGN,
    "test_skipped",
    pattern=r"(?i)\bskipped\b(?: \[(?P<count>\d+)\])?(?:(?!skipped).){0,300}\b(?:gpus?|cuda)\b|"
    r"\b(?:gpus?|cuda)\b(?:(?!gpu|cuda)[^:]){0,300}\bskipped\b(?! \[)|"
    r"\.\.\. skipped '[^']{0,300}\b(?:gpus?|cuda)\b",
    words=("skipped",),
    seen="pytest, unittest",
)

MESSAGES: tuple[Message, ...] = tuple(_TABLE)

# --- recognising -----------------------------------------------------------------------------------------------------

_FIELDS = {
    "": r".{0,300}?",
    "m": r".{0,1000}?",
    "d": r"\d{1,30}",
    "w": r"\w{1,300}",
    "s": r"\S{0,300}?",
    "v": r"\d{1,30}(?:\.\d{1,30}){0,9}",
    "q": r"[^'\"]{0,300}",
    "l": r"[^\]()\[]{0,2000}",
    "b": r"[\da-fA-F:.]{1,40}",
    "p": r"/[^()]{1,300}",
}
_AT_THE_END = {"": r".{0,1000}", "s": r"\S{0,300}"}
"""What they are at the end of a text: as much as there is."""
_WORD = re.compile(r"[a-z_]+")
_LEAST = 3
"""Letters of a word that a line is looked up by."""


@dataclass(frozen=True, eq=False)
class _Text:
    """A text of a message, ready to be looked for."""

    message: Message
    order: int
    """Of the message in the table, and of the text in the message."""
    words: frozenset[str]
    """In lower case: a line that it matches has them all."""
    pattern: re.Pattern[str]


def _words(text: str) -> frozenset[str]:
    """Return the words of a text: letters of the ASCII and ``_``, in lower case."""
    return frozenset(_WORD.findall(text.lower()))


def _prepared(message: Message, order: int, text: str) -> _Text:
    expression, words = "", set[str]()
    parts = list(string.Formatter().parse(text))
    for number, (literal, name, kind, _) in enumerate(parts):
        expression += re.escape(literal)
        # What stands at the edge of a field may be a part of a longer word.
        inside = re.sub(r"^\w+", "", literal) if number else literal
        inside = inside if name is None else re.sub(r"\w+$", "", inside)
        words |= {one for one in _words(inside) if len(one) >= _LEAST}
        if name is not None:
            field = _AT_THE_END.get(kind or "") if number == len(parts) - 1 else None
            expression += f"(?P<{name}>" if name else "(?:"
            expression += f"{field or _FIELDS[kind or '']})"
    starts, ends = (r"\b" if re.search(edge, text) else "" for edge in (r"^(?:\w|\{\w*:[wd]\})", r"\w$"))
    return _Text(message, order, frozenset(words), re.compile(starts + expression + ends))


@cache
def _by_word() -> dict[str, tuple[_Text, ...]]:
    """The table by words: each text under the longest of its own."""
    found: dict[str, list[_Text]] = defaultdict(list)
    order = 0
    for message in MESSAGES:
        for word in message.words:
            assert message.pattern is not None
            found[word].append(_Text(message, order, frozenset(), message.pattern))
        for text in message.texts:
            order += 1
            one = _prepared(message, order, text)
            found[max(one.words, key=len)].append(one)
        order += 1
    return {word: tuple(texts) for word, texts in found.items()}


@cache
def _anchors() -> frozenset[str]:
    return frozenset(_by_word())


def recognised(line: str) -> tuple[Event, ...]:
    """Return the messages in ``line``, in the order of the table; each once."""
    if "\x1b" not in line and _anchors().isdisjoint(
        _WORD.findall(line.lower())
    ):  # nearly all lines of nearly all programs
        return ()
    return _recognised(line)


@lru_cache(maxsize=1 << 14)
def _recognised(line: str) -> tuple[Event, ...]:
    clean = one_line(line)
    words = _words(clean)
    table = _by_word()
    texts = [one for word in _anchors() & words for one in table[word] if one.words <= words]
    found: dict[Message, Event] = {}
    for one in sorted(texts, key=lambda one: one.order):
        if one.message not in found and (match := one.pattern.search(clean)):
            fields = {name: value for name, value in match.groupdict().items() if value is not None}
            found[one.message] = Event(one.message, fields, line, match[0])
    return tuple(found.values())
