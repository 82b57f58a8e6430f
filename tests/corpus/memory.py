"""GPUs whose memory is somebody else's, or less than a program assumes."""

from __future__ import annotations

from conftest import Gpudiag
from corpus import Item
from gpudiag.knowledge.log_lines import Log
from gpudiag.knowledge.messages.way import DEVICE_CREATED

_LOG = ("--log", "app.log", "host", "discovery")
_ONE_OF_TWO_TAKEN = """
[[gpu]]
taken = "16184MiB"
taken_by = 4711
[[gpu]]
"""
_NEARLY_ALL_TAKEN = """
[[gpu]]
taken = "15284MiB"
taken_by = 4711
"""
_ONE_GPU = """
[[gpu]]
"""
_TWO_PROCESSES = """
import subprocess
import sys

source = "import tensorflow as tf; tf.config.list_logical_devices('GPU'); print(); input()"
source += "; tf.zeros([2]); print(); input()"
processes = [
    subprocess.Popen([sys.executable, "-u", "-c", source], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    for _ in range(2)
]
for _ in range(2):  # each has made its device before one takes the memory, and that one keeps it
    for process in processes:
        process.stdout.readline()
    for process in processes:
        process.stdin.write(b"\\n")
        process.stdin.flush()
for process in processes:
    process.wait()
"""
_LIMITED = """
import tensorflow as tf
gpus = tf.config.list_physical_devices("GPU")
limit = tf.config.LogicalDeviceConfiguration(memory_limit=512)
tf.config.set_logical_device_configuration(gpus[0], [limit])
tf.zeros([2])
"""
_LOADS_DATA = """
import tensorflow as tf
next(iter(tf.data.Dataset.range(4).batch(2)))
"""
_JAX = (
    "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 2147483648 bytes."
)
_NO_HANDLE = """\
I0000 00:00:1795217453.798889    8098 gpu_device.cc:2043] Created device /job:localhost/replica:0/task:0/device:GPU:0 \
with 14448 MB memory:  -> device: 0, name: Simulated GPU, pci bus id: 0000:01:00.0, compute capability: 8.0
E0000 00:00:1795217455.112233    8098 cuda_blas.cc:204] failed to create cublas handle: CUBLAS_STATUS_NOT_INITIALIZED
tensorflow.python.framework.errors_impl.InternalError: No blas support for stream [Op:MatMul]
"""


def _second_process(gpudiag: Gpudiag) -> None:
    gpudiag.run_program("1x16GiB", _TWO_PROCESSES)


def _above_its_limit(gpudiag: Gpudiag) -> None:
    """The program holds more than its limit while gpudiag runs."""
    log = gpudiag.run_program("machine.toml", _LIMITED)
    made = Log(log.splitlines()).all(DEVICE_CREATED)[0]
    with (gpudiag.folder / "machine.toml").open("a") as machine:
        machine.write(f'taken = "912MiB"\ntaken_by = {made["thread"]}\n')


def _beside_jax(gpudiag: Gpudiag) -> None:
    gpudiag.run_program("1x16GiB", _LOADS_DATA)
    with (gpudiag.folder / "app.log").open("a") as log:
        log.write(f"{_JAX}\n")


def _without_handle(gpudiag: Gpudiag) -> None:
    (gpudiag.folder / "app.log").write_text(_NO_HANDLE)


ITEMS = (
    Item(
        61,
        "TF takes almost all memory: another process holds one of two GPUs",
        rule="memory_held_by_others",
        fix="export CUDA_VISIBLE_DEVICES=GPU-",
        machine=_ONE_OF_TWO_TAKEN,
        tried="works",
    ),
    Item(
        61,
        "TF takes almost all memory; a second process dies",
        rule="memory_held_by_others",
        fix="set_memory_growth",
        machine="1x16GiB",
        options=_LOG,
        prepare=_second_process,
    ),
    Item(
        63,
        "Out of memory disguised as a cuBLAS start failure",
        rule="no_room_for_libraries",
        fix="set_memory_growth",
        machine="1x16GiB",
        options=_LOG,
        prepare=_without_handle,
        log_recorded=True,
    ),
    Item(
        64,
        "memory_limit is not the whole footprint",
        rule="more_than_the_limit",
        fix="400 MiB",
        machine=_ONE_GPU,
        options=_LOG,
        prepare=_above_its_limit,
    ),
    Item(
        66,
        "TF and JAX in one process fight for memory",
        rule="memory_shared_with_framework",
        fix="XLA_PYTHON_CLIENT_PREALLOCATE=false",
        machine="1x16GiB",
        options=_LOG,
        prepare=_beside_jax,
        log_recorded=True,
    ),
    Item(
        67,
        "Almost no memory left for TF",
        rule="little_memory_left",
        fix="fuser -v /dev/nvidia*",
        machine=_NEARLY_ALL_TAKEN,
    ),
)
