"""The far side of a probe: in a child process, run one ``measure`` and return its reading as JSON.

The child was forked from a server that ran :func:`preload`, or it is a new interpreter. Exceptions propagate: the
isolation layer makes them an outcome.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import msgspec

from gpudiag import catalogue, cuda, nvml
from gpudiag.errors import NoContext, NoMemory
from gpudiag.isolate import farside, linux
from gpudiag.isolate.job import child_outcome
from gpudiag.model import Gpu
from gpudiag.placement import Placement, parse_placements, pci_bus_id, short_device
from gpudiag.probe import (
    Answer,
    CudaDevice,
    FewerListed,
    GpuReading,
    Kernel,
    MemoryUse,
    Peer,
    PlacementLog,
    Raised,
    refuse_disturbance,
)
from gpudiag.probes.common import CUDNN_NEEDED, MATRIX, cudnn_serves, is_square

CAPTURE_BYTES = 16 << 20
"""Most that one output stream may write inside ``with ctx.placements()``."""

MEETING_POLL_S = 0.01

# The driver refused a context: what an exception says then (measured, 2.21). TensorFlow may hang at the next call.
# Where a library is missing the words are alike, and no context was asked for.
_NO_CONTEXT = re.compile(
    r"Bad StatusOr access: (?!.*Error loading CUDA libraries).*|cudaSetDevice\(\) on GPU:\d+ failed\. .*", re.DOTALL
)
_STACK_FRAME = re.compile(r'^ *File "[^"\n]*", line \d+, in .*\n?', re.MULTILINE)


def run_probe(argument: dict[str, Any]) -> bytes:
    """Run ``argument["probe"]`` on ``argument["gpus"]`` (a list of :class:`Gpu` as JSON) and return its reading.

    Raises what the probe raises, and ``ValueError`` for a NaN or an infinity in the reading: JSON has neither.
    """
    name = argument["probe"]
    ctx = _context(argument, own="probe", other="peer")
    with _refusals_of_gpus():
        try:
            reading = catalogue.get(name).module.measure(ctx)
        except FewerListed as fewer:
            reading = GpuReading(given=ctx.given, seen=fewer.seen)
        else:
            if isinstance(reading, GpuReading):
                reading = msgspec.structs.replace(reading, given=ctx.given, seen=len(ctx.gpus))
        return _encoded(reading, name)


def run_peer(argument: dict[str, Any]) -> bytes:
    """Run the second process of a probe; ``argument`` is the same as for :func:`run_probe`."""
    # A GPU that is not listed is for the probe itself to report: it finds as many.
    with _refusals_of_gpus(), contextlib.suppress(FewerListed):
        catalogue.get(argument["probe"]).module.peer(_context(argument, own="peer", other="probe"))
    Meeting(Path(argument["meeting"]), "peer", "probe").leave()  # where it raises, the runner ends the other
    return b"null"


class OnGpu(msgspec.Struct):
    """What came of an operation on the first GPU that TensorFlow lists."""

    listed: bool
    device: str = ""
    """The GPU's name, where what was computed on it came out right."""
    failed: str = ""
    """What it raised, or what was wrong."""


def run_on_gpu(argument: dict[str, Any]) -> bytes:
    """Compute a matrix product and a convolution on the first GPU that TensorFlow lists; return :class:`OnGpu`."""
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        return msgspec.json.encode(OnGpu(listed=False))
    name = tf.config.experimental.get_device_details(gpus[0]).get("device_name", "GPU:0")
    failed = _failure(tf)
    return msgspec.json.encode(OnGpu(listed=True, failed=failed) if failed else OnGpu(listed=True, device=name))


def _failure(tf: Any) -> str:
    """Say what fails on the first GPU; "" where nothing does."""
    tf.config.set_soft_device_placement(False)
    try:
        with tf.device("/GPU:0"):
            product = tf.matmul(MATRIX, MATRIX)
            sums = tf.nn.conv2d(tf.ones([1, 2, 2, 1]), tf.ones([2, 2, 1, 1]), 1, "VALID")  # cuDNN is for these alone
        where = short_device(product.device)
        if where != "GPU:0" or not is_square(product) or float(sums[0, 0, 0, 0]) != 4.0:
            return f"an operation came out wrong, on {where}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    cudnn = _cudnn_version()
    if cudnn is not None and not cudnn_serves(cudnn):
        return f"cuDNN {cudnn} is loaded, and {CUDNN_NEEDED} is needed"
    return ""


def run_apart(argument: dict[str, Any]) -> bytes:
    """Call ``argument["call"]``: the far side of :meth:`ChildContext.apart`."""
    with _refusals_of_gpus():
        try:
            answer = argument["call"]()
        except FewerListed as fewer:
            answer = fewer.seen  # a number, which no answer is
        return _encoded(answer, "a process apart")


@contextmanager
def _refusals_of_gpus() -> Iterator[None]:
    """Tell a probe's own failure from a GPU that gives it no context or no memory."""
    try:
        yield
    except Exception as error:
        if refused := _NO_CONTEXT.search(str(error)):
            raise NoContext(refused[0]) from error
        if type(error).__name__ == "ResourceExhaustedError":
            raise NoMemory(Raised(type(error).__name__, str(error)).brief) from error
        raise


def _encoded(measured: Any, who: str) -> bytes:
    try:
        # Not msgspec's own encoder: it writes null for NaN and infinity.
        text = json.dumps(msgspec.to_builtins(measured), allow_nan=False, ensure_ascii=False)
        return text.encode(errors="replace")  # a text of the system may hold a byte that is no UTF-8
    except ValueError:
        raise ValueError(f"{who} measured a NaN or an infinity: {measured}") from None


def _context(argument: dict[str, Any], own: str, other: str) -> ChildContext:
    folder = argument.get("meeting")
    peer = None if folder is None else Meeting(Path(folder), own, other)
    return ChildContext(msgspec.convert(argument["gpus"], tuple[Gpu, ...]), peer)


def preload() -> Callable[[], str | None]:
    """Import TensorFlow for a fork server; return the guard to call before each fork.

    The guard returns why the process must not fork any more, or None. It looks at Python state only: asking TensorFlow
    would itself query the devices.
    """
    import tensorflow  # noqa: F401  # importing it is the purpose

    catalogue.entries()  # imports every probe once for all children, 30 ms

    def guard() -> str | None:
        if not _has_queried_devices():
            return None
        return (
            "TensorFlow has queried devices in the fork server: every child would inherit its device list, whatever "
            "CUDA_VISIBLE_DEVICES says, and hang at its first operation on a GPU."
        )

    return guard


def _has_queried_devices() -> bool:
    from tensorflow.python.eager import context

    existing = context._context
    return existing is not None and (existing._physical_devices is not None or existing._context_handle is not None)


def preload_simulated() -> Callable[[], str | None]:
    """Do as :func:`preload`, on a simulated machine: forward TensorFlow's kernels once for all children."""
    from gpudiag import simulator

    guard = preload()
    simulator.preload()
    return guard


class CapturedLog:
    """What was written inside ``with ctx.placements()``; empty until the block has ended."""

    def __init__(self) -> None:
        self.lines: tuple[str, ...] = ()

    @cached_property
    def placements(self) -> tuple[Placement, ...]:
        return parse_placements(self.lines)


class Meeting:
    """The :class:`gpudiag.probe.Peer` of a child: two processes that leave each other files in a folder.

    Files and not a pipe: they work wherever a child can be started, and nothing has to be inherited.
    """

    def __init__(self, folder: Path, own: str, other: str) -> None:
        self._folder, self._own, self._other = folder, own, other

    def meet(self, name: str, told: object = None) -> Any:
        ours, theirs = (self._folder / f"{name}.{who}" for who in (self._own, self._other))
        written = ours.with_suffix(".tmp" + ours.suffix)
        written.write_text(json.dumps(told))
        written.rename(ours)  # whole or not at all
        while True:
            left = self._mark(self._other).exists()  # looked at first: what came before it has left is there then
            if theirs.exists():
                return json.loads(theirs.read_text())
            if left:
                raise RuntimeError(f"the other process ended without a meeting {name!r}")
            time.sleep(MEETING_POLL_S)

    def leave(self) -> None:
        """Say that this process meets no more."""
        self._mark(self._own).touch()

    def _mark(self, who: str) -> Path:
        return self._folder / f".{who}-left"


class ChildContext:
    """The :class:`gpudiag.probe.Context` of a child process."""

    def __init__(self, gpus: tuple[Gpu, ...], peer: Peer | None = None) -> None:
        self.gpus = gpus
        self._peer = peer

    @property
    def given(self) -> tuple[str, ...]:
        return tuple(gpu.pci_bus_id for gpu in self.gpus)

    def list_gpus(self, given: int | None = None) -> list[Any]:
        devices: list[Any] = self.tf.config.list_physical_devices("GPU")
        self._refuse_fewer(len(devices), given)
        return devices

    def make_gpus(self) -> list[str]:
        devices = self.tf.config.list_logical_devices("GPU")
        self._refuse_fewer(len(devices))
        return [short_device(device.name) for device in devices]

    def _refuse_fewer(self, seen: int, given: int | None = None) -> None:
        if seen < (len(self.gpus) if given is None else given):
            raise FewerListed(seen)

    def verify(self, product: Any, created: Mapping[str, str] | None = None, factor: float = 1.0) -> Kernel:
        device, correct = short_device(product.device), is_square(product, factor)
        bus_ids = self.pci_bus_ids() if created is None else created
        return Kernel(device, bus_ids.get(device, ""), correct)

    @contextmanager
    def watch(self, gpu: Gpu) -> Iterator[Callable[[], MemoryUse]]:
        uses: list[MemoryUse] = []

        def memory() -> MemoryUse:
            uses.append(self.memory(gpu))
            return uses[-1]

        yield memory
        refuse_disturbance(*uses)

    @property
    def peer(self) -> Peer:
        if self._peer is None:
            raise RuntimeError("this probe has no second process: it needs a function peer(ctx)")
        return self._peer

    @property
    def tf(self) -> Any:
        import tensorflow

        return tensorflow

    def import_log(self) -> tuple[str, ...]:
        with self.placements() as log:
            assert self.tf
        print(farside.preload_output, end="", file=sys.stderr, flush=True)  # as if it had been imported here
        return (*farside.preload_output.splitlines(), *log.lines)

    def attempt(self, call: Callable[[], object]) -> Raised | None:
        try:
            call()
        except Exception as error:
            if refused := _NO_CONTEXT.search(str(error)):
                raise NoContext(refused[0]) from error
            # TensorFlow puts the Python stack of a graph's operation into its message; the fault is in the other lines.
            return Raised(type(error).__name__, _STACK_FRAME.sub("", str(error)))
        return None

    def apart(self, call: Callable[[], Answer], answer: type[Answer], env: Mapping[str, str | None]) -> Answer:
        # TensorFlow before the fork, so that it is imported once. What has queried a device cannot be forked: the copy
        # would inherit the list of devices, and hang at its first operation on a GPU.
        if self.tf and _has_queried_devices():
            raise RuntimeError("this process has queried devices already, so none can be started beside it")
        parent = os.getpid()
        reading, writing = os.pipe()
        _flush()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12+ warns of threads; see the fork server
            pid = os.fork()
        if not pid:
            try:
                if sys.platform == "linux":
                    linux.die_with_parent(parent)
                os.close(reading)
                for name, value in env.items():
                    if value is None:
                        os.environ.pop(name, None)
                    else:
                        os.environ[name] = value
                farside.call(f"{__name__}:{run_apart.__name__}", {"call": call}, writing)
            finally:  # an error here must never return into the probe
                os._exit(1)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            record = pipe.read()
        _, status = os.waitpid(pid, 0)
        content, cause, detail = child_outcome(record, os.waitstatus_to_exitcode(status), None, "")
        if content is None:
            known = next((error for error, meant in farside.CAUSES.items() if meant is cause), None)
            raise known(detail) if known else RuntimeError(f"in a process apart: {detail}")
        found = msgspec.json.decode(content, type=answer | int)
        if isinstance(found, int):
            raise FewerListed(found)
        return found

    @contextmanager
    def placements(self) -> Iterator[PlacementLog]:
        log = CapturedLog()
        # Into files and not pipes: TensorFlow may write while it holds the GIL, and then no thread of this process
        # could read a full pipe empty. The price: a process that dies inside the block takes what it wrote with it.
        with _capture() as out, _capture() as err:
            try:
                with _redirected({1: out, 2: err}), _file_size_limited(CAPTURE_BYTES):
                    yield log
            finally:
                texts = [_forward(out, 1), _forward(err, 2)]
        if any(len(text) >= CAPTURE_BYTES for text in texts):
            raise RuntimeError(f"more than {CAPTURE_BYTES >> 20} MiB were written while placements were captured")
        log.lines = tuple(line for text in texts for line in text.decode(errors="replace").splitlines())

    def memory(self, gpu: Gpu) -> MemoryUse:
        return nvml.memory(gpu.uuid)

    def cuda_devices(self) -> tuple[CudaDevice, ...]:
        return cuda.devices()

    def context_refusals(self) -> dict[str, str]:
        return cuda.refusals()

    def cudnn_version(self) -> str | None:
        return _cudnn_version()

    def pci_bus_ids(self) -> dict[str, str]:
        from tensorflow.python.client import device_lib

        found = (
            (short_device(device.name), pci_bus_id(device.physical_device_desc))
            for device in device_lib.list_local_devices()
        )
        return {name: bus_id for name, bus_id in found if bus_id is not None}


def _cudnn_version() -> str | None:
    """Return the version of the cuDNN that is loaded, by its own account; None where there is none."""
    try:
        library = ctypes.CDLL("libcudnn.so.9")  # the one that is loaded already, wherever it was found
    except OSError:
        return None
    return cuda.cudnn_version(library)


@contextmanager
def _redirected(targets: dict[int, IO[bytes]]) -> Iterator[None]:
    """Let the file descriptors write to the given files; what streams still hold goes where it was meant for."""
    _flush()
    originals = {fd: os.dup(fd) for fd in targets}
    try:
        for fd, file in targets.items():
            os.dup2(file.fileno(), fd)
        yield
    finally:
        _flush()
        for fd, original in originals.items():
            os.dup2(original, fd)
            os.close(original)


@contextmanager
def _file_size_limited(most: int) -> Iterator[None]:
    """Let no file grow beyond ``most`` bytes: a broken driver has made TensorFlow write gigabytes of log in seconds."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    lower = most if soft == resource.RLIM_INFINITY else min(most, soft)
    # Writing beyond it fails with EFBIG and kills nobody: Python ignores SIGXFSZ.
    resource.setrlimit(resource.RLIMIT_FSIZE, (lower, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def _capture() -> IO[bytes]:
    """Return a file for captured output: in memory, if the system has such, because a folder can be full."""
    if sys.platform == "linux":
        return os.fdopen(linux.anonymous_file(), "w+b")
    return tempfile.TemporaryFile()


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):  # EFBIG: the file is full, which is noticed by its size
            stream.flush()
    if os.name == "posix":
        ctypes.CDLL(None).fflush(None)  # TensorFlow prints placements of graphs through C's stdout


def _forward(file: IO[bytes], fd: int) -> bytes:
    """Write what ``file`` holds to ``fd``, for whoever supervises this process, and return it."""
    file.seek(0)
    content = file.read()
    with open(fd, "wb", closefd=False) as original:
        original.write(content)
    return content
