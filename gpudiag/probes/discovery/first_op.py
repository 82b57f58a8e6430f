"""The first result comes from each GPU within seconds, and the second at once.

What it does
    Measures the time to start the driver (`cuInit`), to list the GPUs, to create the devices (which makes a CUDA
    context on each), and to read back a matrix product from each GPU, twice. It also reads in TensorFlow's log whether
    kernels are compiled from PTX.
Why it matters
    A program that seems to hang at its start is often one that waits here: for a driver that is loaded anew for every
    program, for libraries on a slow disk, or for the compilation of kernels, which may take half an hour. Only the
    first operation pays for it; where the second is slow, too, the GPU or the way to it is.
What a failure means
    `slow_driver`: `cuInit` took more than 1 s and half a second a GPU; every process that uses a GPU pays that.
    `slow_context`: listing the GPUs and making their contexts took more than 10 s a GPU.
    `slow_first`: the first operation of a GPU took more than 10 s.
    `slow_second`: the second operation of a GPU took more than 1 s, although everything is loaded by then.
    `compiled`: TensorFlow has no machine code for a GPU, so first uses of its kernels wait for a compiler.
    `gpu_not_seen`, `other_gpu`, `wrong_result`: TensorFlow does not use the GPUs that it was given, or not correctly.
What to do
    Keep the driver loaded: `sudo nvidia-smi -pm 1`, or the service `nvidia-persistenced`. Keep compiled kernels:
    `export CUDA_CACHE_MAXSIZE=4294967296`, and `CUDA_CACHE_PATH` on a disk that stays. Install TensorFlow and its
    libraries on a local disk. In a server, compute once before the first request.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from gpudiag import probe
from gpudiag.hostfacts import Facts
from gpudiag.model import Limits, Severity
from gpudiag.placement import short_device
from gpudiag.probe import Case, Context, Judgement, Kind, Needs, Scope
from gpudiag.probes.common import (
    GPU_NOT_SEEN,
    MATRIX,
    OTHER_GPU,
    WRONG_RESULT,
    Kernel,
    is_square,
    judge_kernel,
    without_machine_code,
)
from gpudiag.record import Record

SLOW_S = 10.0
"""Of one GPU. A driver that is not kept loaded takes some seconds a GPU, libraries on a cold disk as many; a context by
itself takes tenths of a second. What takes longer than all of that together has another cause."""
SLOW_DRIVER_S = 1.0
"""And half of it a GPU: the driver's start with the kernel's part loaded and kept. Without persistence it initialises
each GPU anew, in seconds."""
SLOW_SECOND_S = 1.0
"""Four numbers there and back, everything loaded: a thousand times what a GPU that works takes."""

PROBE = probe.Probe(
    needs=Needs(gpus=1),
    scope=Scope.ALL_GPUS,
    deadline_s=180.0,  # so that what is slow is told as slow, and not as a probe without a result
)

SLOW_DRIVER = Kind(
    "slow_driver",
    Severity.WARNING,
    "cuInit took {init_s:.1f} s with {gpus} GPU(s), at most {allowed_s:.1f} s was expected: every process on a GPU "
    "waits so long, each probe of this report too",
    "Keep the driver loaded: sudo nvidia-smi -pm 1, or start the service nvidia-persistenced.",
)
SLOW_CONTEXT = Kind(
    "slow_context",
    Severity.WARNING,
    "listing {gpus} GPU(s) took {list_s:.1f} s and making their CUDA contexts {create_s:.1f} s, "
    "more than {allowed_s:.0f} s a GPU",
    "Keep the driver loaded: sudo nvidia-smi -pm 1, or start the service nvidia-persistenced.",
)
SLOW_FIRST = Kind(
    "slow_first",
    Severity.WARNING,
    "the first operation on {device} ({pci_bus_id}) took {first_s:.1f} s, the second {second_s:.3f} s",
    "If kernels are compiled, keep them: export CUDA_CACHE_MAXSIZE=4294967296, and CUDA_CACHE_PATH on a disk that "
    "stays. If not, look whether TensorFlow's libraries are on a slow disk.",
)
SLOW_SECOND = Kind(
    "slow_second",
    Severity.WARNING,
    "the second operation on {device} ({pci_bus_id}) took {second_s:.1f} s, at most {allowed_s:.0f} s was expected",
    "Look for other programs on this GPU in nvidia-smi, for its clocks in nvidia-smi -q -d PERFORMANCE, and for Xid "
    "lines in dmesg.",
)
COMPILED = Kind(
    "compiled",
    Severity.NOTE,
    "this TensorFlow has no machine code for compute capability {capabilities}: each kernel waits for a compiler at "
    "its first use; the first operation took {first_s:.1f} s, the second {second_s:.3f} s",
    "Install a TensorFlow built for it, or keep the compiled kernels: export CUDA_CACHE_MAXSIZE=4294967296",
)


class Operation(Record):
    """The same operation twice on one GPU."""

    kernel: Kernel
    first_s: float
    """Until the result was there."""
    second_s: float


class Reading(probe.Reading):
    """How long it took until each GPU computed."""

    given: tuple[str, ...]
    """PCI bus ids of the GPUs that the probe was given, in the order of ``CUDA_VISIBLE_DEVICES``."""
    seen: int
    """GPUs that TensorFlow lists."""
    list_s: float
    """Time of ``tf.config.list_physical_devices('GPU')``."""
    create_s: float
    """Time of ``tf.config.list_logical_devices('GPU')``, which makes the CUDA contexts."""
    operations: tuple[Operation, ...]
    """By TensorFlow's numbers; empty where it lists too few GPUs."""
    compiled: tuple[str, ...]
    """Compute capabilities for which TensorFlow's log announces kernels compiled from PTX."""
    init_s: float = 0.0
    """Until the driver showed its GPUs: ``cuInit``, before anything of TensorFlow's."""

    def figure(self) -> str:
        if not self.operations:
            return f"TensorFlow lists {self.seen} of {len(self.given)} GPUs"
        first = self.init_s + self.list_s + self.create_s + self.operations[0].first_s
        return f"first result in {first:.2g} s, next in {self.operations[0].second_s * 1000:.2g} ms"


def measure(ctx: Context) -> Reading:
    tf = ctx.tf
    given = tuple(gpu.pci_bus_id for gpu in ctx.gpus)
    began = time.perf_counter()
    ctx.cuda_devices()
    init_s = time.perf_counter() - began
    with ctx.placements() as log:
        began = time.perf_counter()
        seen = len(tf.config.list_physical_devices("GPU"))
        listed = time.perf_counter()
        if seen >= len(given):
            devices = [device.name for device in tf.config.list_logical_devices("GPU")]
        created = time.perf_counter()
    if seen < len(given):
        return Reading(given, seen, listed - began, 0.0, (), without_machine_code(log.lines), init_s)
    tf.config.set_soft_device_placement(False)
    kernels, durations = [], []
    for device in devices:
        for _ in range(2):
            start = time.perf_counter()
            with tf.device(device):
                product = tf.matmul(MATRIX, MATRIX)
            correct = is_square(product)
            durations.append(time.perf_counter() - start)
        kernels.append((short_device(product.device), correct))
    bus_ids = ctx.pci_bus_ids()
    return Reading(
        given=given,
        seen=seen,
        list_s=listed - began,
        create_s=created - listed,
        operations=tuple(
            Operation(Kernel(name, bus_ids.get(name, ""), correct), first_s, second_s)
            for (name, correct), first_s, second_s in zip(kernels, durations[::2], durations[1::2], strict=True)
        ),
        compiled=without_machine_code(log.lines),
        init_s=init_s,
    )


def judge(reading: Reading, facts: Facts, limits: Limits) -> Iterator[Judgement]:
    if reading.seen < len(reading.given):
        yield GPU_NOT_SEEN.found(seen=reading.seen, given=len(reading.given))
        return
    gpus = len(reading.given)
    allowed_s = SLOW_DRIVER_S * (1 + gpus / 2)
    if reading.init_s > allowed_s:
        yield SLOW_DRIVER.found(gpus=gpus, init_s=reading.init_s, allowed_s=allowed_s)
    if reading.list_s + reading.create_s > SLOW_S * gpus:
        yield SLOW_CONTEXT.found(gpus=gpus, list_s=reading.list_s, create_s=reading.create_s, allowed_s=SLOW_S)
    for operation, expected in zip(reading.operations, reading.given, strict=True):
        times = {"first_s": operation.first_s, "second_s": operation.second_s}
        if operation.first_s > SLOW_S:
            yield SLOW_FIRST.found(device=operation.kernel.device, pci_bus_id=expected, **times)
        if operation.second_s > SLOW_SECOND_S:
            device = operation.kernel.device
            yield SLOW_SECOND.found(
                device=device, pci_bus_id=expected, second_s=operation.second_s, allowed_s=SLOW_SECOND_S
            )
        yield from judge_kernel(operation.kernel, expected)
    if reading.compiled:
        slowest = max(reading.operations, key=lambda operation: operation.first_s)
        yield COMPILED.found(
            capabilities=" and ".join(reading.compiled), first_s=slowest.first_s, second_s=slowest.second_s
        )


_FIRST, _SECOND = "0000:3b:00.0", "0000:af:00.0"


def _case(
    name: str,
    *expect: str,
    create_s: float = 0.6,
    first_s: float = 0.8,
    second_s: float = 0.0004,
    second: str = _SECOND,
    correct: bool = True,
    compiled: tuple[str, ...] = (),
    init_s: float = 0.2,
) -> Case:
    operations = (
        Operation(Kernel("GPU:0", _FIRST, True), 0.9, 0.0004),
        Operation(Kernel("GPU:1", second, correct), first_s, second_s),
    )
    verified = (_FIRST, _SECOND) if correct and second == _SECOND else (_FIRST,)
    reading = Reading((_FIRST, _SECOND), 2, 0.3, create_s, operations, compiled, init_s)
    return Case(name, expect, reading, verified=verified)


CASES = (
    _case("in seconds"),
    _case("a driver that is loaded anew", create_s=9.0),
    _case("a driver that is not kept loaded", SLOW_DRIVER.name, init_s=3.0),
    _case("contexts that take a minute", SLOW_CONTEXT.name, create_s=60.0),
    _case("half a minute of compilation", SLOW_FIRST.name, COMPILED.name, first_s=31.0, compiled=("12.0",)),
    _case("compiled before, and cached", COMPILED.name, compiled=("12.0",)),
    _case("slow at the second time, too", SLOW_SECOND.name, first_s=2.0, second_s=1.9),
    _case("another GPU", OTHER_GPU.name, second=_FIRST),
    _case("a wrong product", WRONG_RESULT.name, correct=False),
    Case("TensorFlow lists one of two", (GPU_NOT_SEEN.name,), Reading((_FIRST, _SECOND), 1, 0.3, 0.0, (), ())),
)
