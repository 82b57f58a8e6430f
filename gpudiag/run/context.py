"""The objects that a probe may use in its child process: TensorFlow, NVML, CUDA, the log of placements."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import IO, Any

import msgspec

from gpudiag.errors import NoContext, NotSimulated
from gpudiag.hardware import cuda, nvml
from gpudiag.hardware.starvation import Starvation, threads
from gpudiag.isolate import linux, worker
from gpudiag.isolate.job import child_outcome
from gpudiag.knowledge.placement import Placement, parse_placements, pci_bus_id, short_device
from gpudiag.knowledge.variables import PLUGINS
from gpudiag.model.facts import GpuState
from gpudiag.model.report import Gpu
from gpudiag.probe import (
    Answer,
    CudaDevice,
    FewerListed,
    Kernel,
    Load,
    MemoryUse,
    Peer,
    PlacementLog,
    Raised,
    refuse_disturbance,
)
from gpudiag.probes.common import is_square
from gpudiag.run.timelines import Timelines
from gpudiag.simulator.limits import limit_of

# The driver refused a context: what an exception says then (measured, 2.21). TensorFlow may hang at the next call.
# If a library is missing the words are alike, and no context was asked for.
NO_CONTEXT = re.compile(
    r"Bad StatusOr access: (?!.{0,1000}Error loading CUDA libraries).*|cudaSetDevice\(\) on GPU:\d+ failed\. .*",
    re.DOTALL,
)
_STACK_FRAME = re.compile(r'^ *File "[^"\n]*", line \d+, in .*\n?', re.MULTILINE)


def has_queried_devices() -> bool:
    from tensorflow.python.eager import context

    existing = context._context
    return existing is not None and (existing._physical_devices is not None or existing._context_handle is not None)


def raised(error: Exception) -> Raised:
    """Return the record of what TensorFlow raised."""
    # TensorFlow puts the Python stack of a graph's operation into its message; the fault is in the other lines.
    return Raised(type(error).__name__, _STACK_FRAME.sub("", str(error)))


def refuse_what_is_no_result(error: Exception) -> None:
    """Raise the probe outcome for an ``error`` that says nothing about how TensorFlow works here. Every error that
    becomes a finding passes here."""
    if isinstance(error, NotSimulated | NoContext):
        raise error
    if limit := limit_of(error):
        raise NotSimulated(f"simulated GPUs cannot run {limit}") from error
    if refused := NO_CONTEXT.search(str(error)):
        raise NoContext(refused[0]) from error


class CapturedLog:
    """The output written inside ``with ctx.placements()``; empty until the block has ended."""

    def __init__(self) -> None:
        self.lines: tuple[str, ...] = ()

    @cached_property
    def placements(self) -> tuple[Placement, ...]:
        return parse_placements(self.lines)


class ChildContext:
    """Implements :class:`gpudiag.probe.Context` in a child process."""

    def __init__(self, gpus: tuple[Gpu, ...], peer: Peer | None = None, load: Load | None = None) -> None:
        self.gpus = gpus
        self._peer = peer
        self._load = load
        self.timelines = Timelines(tuple(gpu.uuid for gpu in gpus))

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
    def load(self) -> Load:
        if self._load is None:
            raise RuntimeError("this probe is not of level stress: it needs Probe(stress=...)")
        return self._load

    @property
    def tf(self) -> Any:
        import tensorflow

        return tensorflow

    def import_log(self) -> tuple[str, ...]:
        imported = "tensorflow" in sys.modules
        with self.placements() as log:
            assert self.tf
            if imported and (plugins := os.environ.get(PLUGINS)):
                _load_plugins(plugins)
        print(worker.preload_output, end="", file=sys.stderr, flush=True)  # as if it had been imported here
        return (*worker.preload_output.splitlines(), *log.lines)

    def attempt(self, call: Callable[[], object]) -> Raised | None:
        try:
            call()
        except Exception as error:
            refuse_what_is_no_result(error)
            return raised(error)
        return None

    def apart(self, call: Callable[[], Answer], answer: type[Answer], env: Mapping[str, str | None]) -> Answer:
        # TensorFlow before the fork, so that it is imported once. What has queried a device cannot be forked: the copy
        # would inherit the list of devices, and hang at its first operation on a GPU.
        if self.tf and has_queried_devices():
            raise RuntimeError("this process has queried devices already, so none can be started beside it")
        parent = os.getpid()
        reading, writing = os.pipe()
        _flush()
        with self.timelines.paused():
            pid = worker.fork()
        if not pid:
            try:
                if (order := worker.order_files.get(parent)) is not None:
                    worker.order_files[os.getpid()] = order  # the process that waits captures nothing meanwhile
                linux.die_with_parent(parent)
                linux.let_look()
                os.close(reading)
                for name, value in env.items():
                    if value is None:
                        os.environ.pop(name, None)
                    else:
                        os.environ[name] = value
                worker.call("gpudiag.run.worker:run_apart", {"call": call}, writing)
            finally:  # an error here must never return into the probe
                os._exit(1)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            record = pipe.read()
        _, status = os.waitpid(pid, 0)
        content, cause, detail = child_outcome(record, os.waitstatus_to_exitcode(status), None, "")
        if content is None:
            known = next((error for error, meant in worker.CAUSES.items() if meant is cause), None)
            raise known(detail) if known else RuntimeError(f"in a process apart: {detail}")
        found = msgspec.json.decode(content, type=answer | int)
        if isinstance(found, int):
            raise FewerListed(found)
        return found

    def clock(self) -> Callable[[], float]:
        began, process = time.monotonic(), os.getpid()
        starvation = Starvation(began)
        starvation.note(threads(process), began, stopped=False)

        def seconds() -> float:
            starvation.look(process, time.monotonic())
            return time.monotonic() - began - starvation.seconds

        return seconds

    @contextmanager
    def placements(self) -> Iterator[PlacementLog]:
        log = CapturedLog()
        # Into files and not pipes: TensorFlow may write while it holds the GIL, and then no thread of this process
        # could read a full pipe empty. If the process dies inside the block, its supervisor reads the file of stderr.
        with _capture(linux.anonymous_file()) as out, _capture(_file_of_errors()) as err:
            begins = err.tell()
            try:
                with _redirected({1: out, 2: err}), _file_size_limited(worker.CAPTURE_BYTES):
                    yield log
            finally:
                texts = [_forward(out, 0, 1), _forward(err, begins, 2)]
        if max(len(texts[0]), begins + len(texts[1])) >= worker.CAPTURE_BYTES:
            most = f"{worker.CAPTURE_BYTES >> 20} MiB"
            raise RuntimeError(f"more than {most} were written while placements were captured")
        log.lines = tuple(line for text in texts for line in text.decode(errors="replace").splitlines())

    def memory(self, gpu: Gpu) -> MemoryUse:
        use = nvml.memory(gpu.uuid)
        self.timelines.look(gpu.uuid, use.used_bytes)
        return use

    def used_memory(self, gpu: Gpu) -> int | None:
        return nvml.used_memory(gpu.uuid)

    def state(self, gpu: Gpu) -> GpuState:
        return nvml.state(gpu.uuid)

    def cuda_devices(self) -> tuple[CudaDevice, ...]:
        return cuda.devices()

    def context_refusals(self) -> dict[str, str]:
        return cuda.refusals()

    def cudnn_version(self) -> str | None:
        return cudnn_version()

    def pci_bus_ids(self) -> dict[str, str]:
        from tensorflow.python.client import device_lib
        from tensorflow.python.eager import context

        # With the options of the devices that there are: with others their numbers may mean other GPUs, an error.
        options = context.context().config
        found = (
            (short_device(device.name), pci_bus_id(device.physical_device_desc))
            for device in device_lib.list_local_devices(options)
        )
        return {name: bus_id for name, bus_id in found if bus_id is not None}


def _load_plugins(path: str) -> None:
    """Load the plug-ins that :data:`PLUGINS` names, as the end of ``import tensorflow`` does: the fork server was
    started without them."""
    from tensorflow.python.framework import load_library

    try:
        load_library.load_pluggable_device_library(path)
    except Exception as error:
        raise ImportError(f"import tensorflow raised {type(error).__name__}: {error}") from error


def cudnn_version() -> str | None:
    """Return the version of the loaded cuDNN, or None if no cuDNN is loaded."""
    try:
        library = ctypes.CDLL("libcudnn.so.9")  # the one that is loaded already, wherever it was found
    except OSError:
        return None
    return cuda.cudnn_version(library)


@contextmanager
def _redirected(targets: dict[int, IO[bytes]]) -> Iterator[None]:
    """Redirect file descriptors to the given files; buffered output is flushed to its old destination first."""
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
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    lower = most if soft == resource.RLIM_INFINITY else min(most, soft)
    # Writing beyond it fails with EFBIG and kills nobody: Python ignores SIGXFSZ.
    resource.setrlimit(resource.RLIMIT_FSIZE, (lower, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def _capture(descriptor: int) -> IO[bytes]:
    return os.fdopen(descriptor, "w+b", buffering=0)


def _file_of_errors() -> int:
    """Return a file for captured stderr: that of the order of this job, or another one if a fork asks that a probe has
    made by itself."""
    file = worker.order_files.get(os.getpid())
    return linux.anonymous_file() if file is None else os.dup(file)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):  # EFBIG: the file is full, which is noticed by its size
            stream.flush()
    ctypes.CDLL(None).fflush(None)  # TensorFlow prints placements of graphs through C's stdout


def _forward(file: IO[bytes], begins: int, fd: int) -> bytes:
    """Move what ``file`` holds from the byte ``begins`` on to ``fd``, for anyone who supervises this process; return
    it."""
    file.seek(begins)
    content = file.read()
    file.seek(begins)
    file.truncate()
    with open(fd, "wb", closefd=False) as original:
        original.write(content)
    return content
