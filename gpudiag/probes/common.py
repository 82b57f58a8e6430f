"""Code that several probes share: a product with a known result, devices made alike, and TensorFlow's log about
them."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import contextmanager
from typing import Any

from gpudiag import fix
from gpudiag.errors import NoContext
from gpudiag.knowledge.placement import created_devices, short_device
from gpudiag.model.facts import Facts
from gpudiag.model.report import Figure, Gpu
from gpudiag.probe import (
    FILLED_BYTES,
    MIB,
    SLACK_BYTES,
    Context,
    FindingKind,
    Findings,
    GpuReading,
    Kernel,
    KernelFaults,
    MemoryUse,
    Raised,
    ReplicaFaults,
    Work,
    fail,
    note,
    refuse_disturbance,
    warn,
)
from gpudiag.record import Record

MATRIX = [[1.0, 2.0], [3.0, 4.0]]
SQUARE = [[7.0, 10.0], [15.0, 22.0]]
"""``MATRIX`` times itself; exact in every floating-point format of a GPU, TF32 included."""

ALL_PAIRS_UP_TO = 8
"""Up to this many GPUs all pairs copy; with more, each GPU copies to some others, because the time grows with the
square."""

CUDNN_NEEDED = "9.3.0"
"""The cuDNN that TensorFlow 2.18-2.21 needs, by its own words: "Loaded runtime CuDNN library: 9.1.0 but source was
compiled with: 9.3.0. CuDNN library needs to have matching major version and equal or higher minor version." (simulated)
"""


def without_allocation_retry(ctx: Context) -> None:
    """Make a failing allocation raise at once in eager mode: TensorFlow otherwise retries it for 10 s.

    Call this before anything else: outside a session there is no other way to set the option.
    """
    v1 = ctx.tf.compat.v1
    v1.disable_eager_execution()
    v1.enable_eager_execution(config=v1.ConfigProto(gpu_options=without_retry(v1.GPUOptions())))


def attempt_context(ctx: Context, call: Callable[[], object]) -> Raised | None:
    """Return what ``call`` raised, as ``ctx.attempt`` does, also if no CUDA context could be made.

    Do not use TensorFlow after an error: its next call may never return (measured, 2.21).
    """
    try:
        return ctx.attempt(call)
    except NoContext as refused:
        return Raised("RuntimeError", str(refused))


def is_square(product: Any, factor: float = 1.0) -> bool:
    """Return True if ``product`` (a tensor or an array) is :data:`SQUARE` times ``factor``; waits for the device."""
    values = product.numpy() if hasattr(product, "numpy") else product
    return bool((values == [[factor * value for value in row] for row in SQUARE]).all())


def work(ctx: Context, device: str, bus_ids: dict[str, str]) -> Work:
    """Fill a tensor of :data:`FILLED_BYTES` on ``device`` and multiply; ``bus_ids`` maps TensorFlow's devices to PCI
    bus ids.

    Memory growth must be on, or the tensor finds memory that was taken before.
    """
    tf = ctx.tf
    with tf.device(device):
        rose = rises(ctx, lambda: tf.zeros([FILLED_BYTES // 4]))  # the pool keeps what the tensor took
        product = tf.matmul(MATRIX, MATRIX)
    return Work(ctx.verify(product, bus_ids), rose)


def rises(ctx: Context, call: Callable[[], object], gpus: Sequence[Gpu] = ()) -> dict[str, int]:
    """Return by how many bytes ``call`` raised the memory in use of each GPU (by PCI bus id), or of each of
    ``gpus``."""
    gpus = gpus or ctx.gpus
    before = [ctx.memory(gpu) for gpu in gpus]
    call()
    after = [ctx.memory(gpu) for gpu in gpus]
    for earlier, later in zip(before, after, strict=True):
        refuse_disturbance(earlier, later)
    return {gpu.pci_bus_id: later - earlier for gpu, earlier, later in zip(gpus, before, after, strict=True)}


_JIT_COMPILED = re.compile(r"not built with CUDA kernel binaries compatible with compute capability (\d+\.\d+)")


def without_machine_code(lines: Iterable[str]) -> tuple[str, ...]:
    """Return the compute capabilities for which TensorFlow has no machine code, according to its log ``lines``."""
    return tuple(dict.fromkeys(found[1] for found in map(_JIT_COMPILED.search, lines) if found))


Numbers = tuple[float | None, ...]
"""Computed numbers, row by row; None for NaN and infinity, which a reading cannot hold."""


def numbers(computed: Any) -> Numbers:
    """Return the values of ``computed`` (a tensor or an array); waits for the device."""
    values = computed.numpy() if hasattr(computed, "numpy") else computed
    return tuple(value if math.isfinite(value) else None for value in values.ravel().tolist())


REPLICA_BYTES = 128 * MIB
"""Memory limit of each device of :func:`make_replicas`."""


class GraphProgram:
    """A graph on one device for a ``tf.compat.v1.Session``: a small tensor, a tensor of any size, and a matrix
    product."""

    def __init__(self, ctx: Context, device: str = "GPU:0") -> None:
        self._ctx, self._device = ctx, device
        tf, v1 = ctx.tf, ctx.tf.compat.v1
        self.graph = tf.Graph()
        with self.graph.as_default(), tf.device(f"/{device}"):
            self._matrix, self._elements = v1.placeholder(tf.float32, [2, 2]), v1.placeholder(tf.int32, [1])
            self._copied, self._product = tf.identity(self._matrix), tf.matmul(self._matrix, self._matrix)
            self._filled = tf.fill(self._elements, 1.0)[0]
        self._session: Any = None
        self.lines: tuple[str, ...] = ()
        """TensorFlow's log lines from opening the session, when it makes its devices."""

    @contextmanager
    def session(self, options: Any) -> Iterator[None]:
        """Open a session with these GPU options, and keep it open during the block."""
        v1 = self._ctx.tf.compat.v1
        with self._ctx.placements() as log:
            self._session = v1.Session(graph=self.graph, config=v1.ConfigProto(gpu_options=options))
        self.lines = log.lines
        with self._session:
            yield

    def copy(self) -> None:
        """Copy a tensor of 16 bytes to the device; TensorFlow takes memory for this first tensor."""
        self._session.run(self._copied, {self._matrix: MATRIX})

    def fill(self, number: int) -> None:
        """Fill a tensor of this number of bytes on the device."""
        self._session.run(self._filled, {self._elements: [number // 4]})

    def multiply(self) -> Kernel:
        """Multiply on the device. Call this last: the matrix library takes its own memory beside the pool."""
        correct = is_square(self._session.run(self._product, {self._matrix: MATRIX}))
        return Kernel(self._device, created_devices(self.lines).get(self._device, ""), correct)


def without_retry(options: Any) -> Any:
    """Return GPU options with which TensorFlow does not retry a failing allocation for 10 s."""
    options.experimental.disallow_retry_on_allocation_failure = True
    return options


SET_A_LIMIT = fix.edit(
    "tf.config.set_logical_device_configuration(gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=4096)])",
    "sets a limit",
)


class LimitFaults(KernelFaults):
    """The findings about a memory limit of a device."""

    not_at_once = warn(
        "the first tensor on {device} took {taken_bytes} of its limit of {limit_bytes}",
        means="The GPU was nearly full, or growth was on.",
        do=(
            fix.nvidia_smi("look for what else fills this GPU"),
            fix.note("if it is empty, look for code that sets memory growth"),
        ),
    )
    overridden = note(
        "TF_FORCE_GPU_ALLOW_GROWTH=true decides when memory is taken: "
        "the first tensor on {device} took {taken_bytes} of its limit of {limit_bytes}",
        means="TF_FORCE_GPU_ALLOW_GROWTH=true decides when memory is taken, not the limit or the fraction.",
        do=fix.unset("TF_FORCE_GPU_ALLOW_GROWTH", note="to have the whole limit taken at once"),
    )
    other_error = fail(
        "asking {device} for {beyond_bytes}, its limit is {limit_bytes}, raised {error}",
        means="A tensor beyond the limit raised another error than ResourceExhaustedError.",
        do="Programs that catch tf.errors.ResourceExhaustedError miss this error: look up its text.",
    )


class Limited(Record):
    """The memory in use on a device with a limit, by NVML."""

    before: MemoryUse
    """Memory after the CUDA context was made, before the first tensor."""
    first: MemoryUse
    """Memory after the first tensor, of 16 bytes."""
    last: MemoryUse
    """Memory after twice the limit was requested."""
    exceeded: Raised | None
    """The error that requesting twice the limit raised."""
    kernel: Kernel
    """A matrix product that was computed last."""

    def judged(self, limit: int, facts: Facts, least: int, ignored: FindingKind, unlimited: FindingKind) -> Findings:
        """Judge the memory: the first tensor should take at least ``least``, and nothing should take more than
        ``limit``.

        The finding is ``ignored`` if more was taken, or ``unlimited`` if the allocator in use knows no limits.
        """
        first, last = self.first - self.before, self.last - self.before
        figures: dict[str, Figure] = {"device": self.kernel.device, "limit_bytes": limit, "beyond_bytes": 2 * limit}
        allocator = facts.variables.get("TF_GPU_ALLOCATOR", "")
        if facts.variables.get("TF_FORCE_GPU_ALLOW_GROWTH") == "true":
            yield LimitFaults.overridden.found(**figures, taken_bytes=first)
        elif allocator not in WITHOUT_POOL and first < least:
            yield LimitFaults.not_at_once.found(**figures, taken_bytes=first)
        if self.exceeded is None or max(first, last) > limit + SLACK_BYTES:
            if allocator in WITHOUT_POOL:
                yield unlimited.found(**figures, allocator=allocator)
            else:
                ended = "was refused" if self.exceeded else "was given out"
                yield ignored.found(**figures, taken_bytes=max(first, last), ended=ended)
        elif self.exceeded.type != "ResourceExhaustedError":
            yield LimitFaults.other_error.found(**figures, error=self.exceeded.brief)


class ReplicaReading(GpuReading, kw_only=True):
    """Base of the readings of a program for several GPUs, tried on the devices of :func:`make_replicas`."""

    made: dict[str, str]
    """PCI bus id of each device (``GPU:0``), from TensorFlow's ``Created device`` lines."""

    @property
    def expected(self) -> tuple[str, ...]:
        """PCI bus ids of the devices asked for: one on each GPU, and two if there is only one GPU."""
        return self.given if len(self.given) > 1 else self.given * 2

    @property
    def where(self) -> str:
        """Where the program ran, in a few words."""
        return f"{len(self.made)} GPUs" if len(self.given) > 1 else f"{len(self.made)} logical devices on 1 GPU"

    def unusable(self) -> Findings:
        yield from super().unusable()
        if tuple(self.made.values()) != self.expected:
            found = ", ".join(bus_id or "(not named)" for bus_id in self.made.values())
            devices, expected = ", ".join(self.made), ", ".join(self.expected)
            yield ReplicaFaults.other_gpu.found(device=devices, found=found, expected=expected)


def create_devices(ctx: Context) -> dict[str, str]:
    """Let TensorFlow make its GPU devices; return their names and PCI bus ids from its ``Created device`` lines."""
    with ctx.placements() as log:
        names = [short_device(device.name) for device in ctx.tf.config.list_logical_devices("GPU")]
    created = created_devices(log.lines)
    return {name: created.get(name, "") for name in names}


def make_replicas(ctx: Context) -> dict[str, str]:
    """Let TensorFlow make a device on every GPU, two if there is only one, and switch soft placement off.

    Return the PCI bus id of each device. A device has a memory limit instead of growth, which an environment variable
    can switch off.
    """
    tf = ctx.tf
    for device in ctx.list_gpus():
        part = tf.config.LogicalDeviceConfiguration(memory_limit=REPLICA_BYTES // MIB)
        tf.config.set_logical_device_configuration(device, [part] * (1 if len(ctx.gpus) > 1 else 2))
    tf.config.set_soft_device_placement(False)
    return create_devices(ctx)


COLLECTIVE_S = 30.0
"""Time limit of a collective. NCCL and a driver that start slowly may take 25 s, and a process that does nothing for 35
s counts as hung."""


LEAST_WAIT_S = 0.1
"""The least seconds that :func:`in_time` waits at a time; on a busy machine it waits again and again."""


def in_time(ctx: Context, seconds: float, call: Callable[[], object]) -> Raised | None:
    """Return the error of ``call``, or ``TimeoutError`` if it has not ended within ``seconds``.

    A collective that waits for a GPU cannot be ended. Do not use TensorFlow after a ``TimeoutError``.
    """
    ended: Future[Raised | None] = Future()

    def run() -> None:
        try:
            ended.set_result(ctx.attempt(call))
        except Exception as error:  # what ends the measurement of a probe, which this thread cannot
            ended.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    elapsed_s = ctx.clock()
    while (left_s := seconds - elapsed_s()) > 0:
        try:
            return ended.result(max(left_s, LEAST_WAIT_S))
        except FutureTimeout:
            if ended.done():
                raise
    return Raised("TimeoutError", f"it had not ended after {seconds:.0f} s")


def is_partitioned(facts: Facts, pci_bus_id: str) -> bool:
    """Return True if MIG mode is on: TensorFlow is given an instance, and NVML reports the memory of the whole GPU."""
    return any(gpu.pci_bus_id == pci_bus_id and gpu.mig_mode == "enabled" for gpu in facts.nvml_devices)


# They hand each tensor's memory through to CUDA; measured on 2.21.0: neither cap nor limit holds.
WITHOUT_POOL = {"cuda_malloc", "cuda_malloc_async"}

_CEILING = re.compile(r"Created device \S*/device:(?P<device>GPU:\d+) with (?P<mib>\d+) MB memory")


def ceilings_mib(lines: Iterable[str]) -> dict[str, int]:
    """Map each GPU device that TensorFlow says it created (``GPU:0``) to the most memory it may take, in MiB.

    The figure is not the memory in use, and it ignores ``TF_PER_DEVICE_MEMORY_LIMIT_MB``. The line says MB and means
    MiB.
    """
    return {found["device"]: int(found["mib"]) for line in lines if (found := _CEILING.search(line))}


def devices_in_graphs(ctx: Context) -> tuple[Any, int]:
    """Return options for every session of a process, and the number of GPU devices that these options make.

    There is one device for each GPU; a single GPU is split in two. Call this only if TensorFlow lists every GPU.
    """
    v1 = ctx.tf.compat.v1
    options, count = v1.GPUOptions(), len(ctx.gpus)
    if count == 1:
        limit_mib = 2 * FILLED_BYTES // MIB
        options.experimental.virtual_devices.add(memory_limit_mb=[limit_mib, limit_mib])
        count = 2
    return v1.ConfigProto(gpu_options=options, log_device_placement=True), count


def gpus_of_graph_devices(given: Sequence[str]) -> tuple[str, ...]:
    """Return the PCI bus id that each device of :func:`devices_in_graphs` should be on."""
    return tuple(given) * 2 if len(given) == 1 else tuple(given)


def cudnn_serves(version: str) -> bool:
    """Return True if TensorFlow accepts this cuDNN: same major version, and not older."""
    found, needed = (tuple(map(int, re.findall(r"\d+", release)[:2])) for release in (version, CUDNN_NEEDED))
    return found[:1] == needed[:1] and found >= needed


def pairs(devices: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield the source and the target of each copy between devices: all pairs, or of many devices a sample."""
    count = len(devices)
    apart = {step % count for far in range(count.bit_length()) for step in (1 << far, -1 << far)} - {0}
    for number, device in enumerate(devices):
        for step in range(1, count) if count <= ALL_PAIRS_UP_TO else sorted(apart):
            yield device, devices[(number + step) % count]
