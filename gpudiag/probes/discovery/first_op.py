"""The first result comes from each GPU within seconds, and the second at once.

What it does
    Measures the time to start the driver (`cuInit`), to list the GPUs, to create the devices (which makes a CUDA
    context on each), and to read back a matrix product from each GPU, twice. It also reads in TensorFlow's log whether
    kernels are compiled from PTX.
Why it matters
    A program that seems to hang at its start is often one that waits here: for a driver that is loaded again for every
    program, for libraries on a slow disk, or for the compilation of kernels, which may take half an hour. Only the
    first operation pays for it; if the second is slow, too, the GPU or the way to it is.
What to do
    Keep the driver loaded: `sudo nvidia-smi -pm 1`, or the service `nvidia-persistenced`. Keep compiled kernels:
    `export CUDA_CACHE_MAXSIZE=4294967296`, and `CUDA_CACHE_PATH` on a disk that stays. Install TensorFlow and its
    libraries on a local disk. In a server, compute once before the first request.
"""

from __future__ import annotations

import time

from gpudiag import fix, probe
from gpudiag.knowledge.placement import short_device
from gpudiag.model.facts import GpuState
from gpudiag.probe import Context, Findings, Kernel, note, warn
from gpudiag.probes.common import MATRIX, is_square, without_machine_code
from gpudiag.record import Record

SLOW_S = 10.0
"""Time limit for one GPU. A driver that is not kept loaded takes some seconds a GPU, libraries on a cold disk as many;
a context by itself takes tenths of a second. Anything slower than all of that together has another cause."""
SLOW_DRIVER_S = 1.0
"""Time limit for the driver's start with its kernel module loaded and kept, plus half as much for each GPU. Without
persistence the driver initialises each GPU again, which takes seconds."""
SLOW_SECOND_S = 1.0
"""Time limit for copying four numbers to the GPU and back with everything loaded: a thousand times what a healthy GPU
takes."""

KEEP_LOADED = (
    fix.configure("sudo nvidia-smi -pm 1", "keeps the driver loaded; or start the service nvidia-persistenced"),
    fix.kernel_log("if persistence mode is on already: look for errors of a GPU"),
)

PROBE = probe.Probe(
    needs=probe.Needs(gpus=1),
    scope=probe.Scope.ALL_GPUS,
    deadline_s=180.0,  # so that what is slow is reported as slow, and not as a probe without a result
)


class Fault(probe.KernelFaults):
    slow_driver = warn(
        "cuInit took {init_s:.1f} s (GPUs: {gpus}), at most {allowed_s:.1f} s was expected: every process on a GPU "
        "waits that long, each probe of this report too",
        means="The driver takes long to start (cuInit): every process on a GPU waits that long, each probe too.",
        do=KEEP_LOADED,
    )
    slow_context = warn(
        "listing the GPUs ({gpus}) took {list_s:.1f} s and making their CUDA contexts {create_s:.1f} s: "
        "more than {allowed_s:.0f} s for each GPU",
        means="To list the GPUs and to make their CUDA contexts takes long.",
        do=KEEP_LOADED,
    )
    slow_first = warn(
        "the first operation on {device} ({pci_bus_id}) took {first_s:.1f} s, the second {second_s:.3f} s",
        means="The first operation of a GPU took more than 10 s.",
        do=(probe.KEEP_KERNELS, fix.note("if none are, look whether TensorFlow's libraries are on a slow disk")),
    )
    slow_second = warn(
        "the second operation on {device} ({pci_bus_id}) took {second_s:.1f} s, at most {allowed_s:.0f} s was expected",
        means="The second operation on a GPU is slow, although its kernel is loaded by then.",
        do=(
            fix.nvidia_smi("look for other programs on this GPU"),
            fix.nvidia_smi("its clocks", "-q -d PERFORMANCE"),
            probe.KERNEL_LOG,
        ),
    )
    compiled = note(
        "this TensorFlow has no machine code for compute capability {capabilities}: each kernel waits for a compiler "
        "at its first use; the first operation took {first_s:.1f} s, the second {second_s:.3f} s",
        means="TensorFlow has no machine code for this GPU: each kernel waits for a compiler at its first use.",
        do=fix.export(
            "CUDA_CACHE_MAXSIZE", "4294967296", "install a TensorFlow built for it, or keep the compiled kernels"
        ),
    )


class RepeatedOperation(Record):
    """One operation, run twice on one GPU."""

    kernel: Kernel
    first_s: float
    """Seconds until the first result was there."""
    second_s: float


class Reading(probe.GpuReading):
    """The time until each GPU computed."""

    list_s: float
    """Seconds for ``tf.config.list_physical_devices('GPU')``."""
    create_s: float
    """Seconds for ``tf.config.list_logical_devices('GPU')``, which makes the CUDA contexts."""
    operations: tuple[RepeatedOperation, ...]
    """The operations, in the order of TensorFlow's numbers."""
    compiled: tuple[str, ...]
    """Compute capabilities for which TensorFlow's log announces kernels compiled from PTX."""
    init_s: float = 0.0
    """Seconds until the driver showed its GPUs (``cuInit``), before TensorFlow did anything."""
    states: dict[str, GpuState] = {}
    """NVML's state of each GPU by PCI bus id, read right after the operations, before a GPU lowers its clocks and its
    link."""

    def figure(self) -> str:
        first = self.init_s + self.list_s + self.create_s + self.operations[0].first_s
        return f"first result in {first:.2g} s, next in {self.operations[0].second_s * 1000:.2g} ms"


def measure(ctx: Context) -> Reading:
    tf = ctx.tf
    began = time.perf_counter()
    ctx.cuda_devices()
    init_s = time.perf_counter() - began
    with ctx.placements() as log:
        began = time.perf_counter()
        ctx.list_gpus()
        listed = time.perf_counter()
        devices = [device.name for device in tf.config.list_logical_devices("GPU")]
        created = time.perf_counter()
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
    states = {gpu.pci_bus_id: ctx.state(gpu) for gpu in ctx.gpus}
    bus_ids = ctx.pci_bus_ids()
    return Reading(
        list_s=listed - began,
        create_s=created - listed,
        operations=tuple(
            RepeatedOperation(Kernel(name, bus_ids.get(name, ""), correct), first_s, second_s)
            for (name, correct), first_s, second_s in zip(kernels, durations[::2], durations[1::2], strict=True)
        ),
        compiled=without_machine_code(log.lines),
        init_s=init_s,
        states=states,
    )


def judge(reading: Reading) -> Findings:
    gpus = len(reading.given)
    allowed_s = SLOW_DRIVER_S * (1 + gpus / 2)
    if reading.init_s > allowed_s:
        yield Fault.slow_driver.found(gpus=gpus, init_s=reading.init_s, allowed_s=allowed_s)
    if reading.list_s + reading.create_s > SLOW_S * gpus:
        yield Fault.slow_context.found(gpus=gpus, list_s=reading.list_s, create_s=reading.create_s, allowed_s=SLOW_S)
    for operation, expected in zip(reading.operations, reading.given, strict=True):
        times = {"first_s": operation.first_s, "second_s": operation.second_s}
        if operation.first_s > SLOW_S:
            yield Fault.slow_first.found(device=operation.kernel.device, pci_bus_id=expected, **times)
        if operation.second_s > SLOW_SECOND_S:
            device = operation.kernel.device
            yield Fault.slow_second.found(
                device=device, pci_bus_id=expected, second_s=operation.second_s, allowed_s=SLOW_SECOND_S
            )
        yield from operation.kernel.verified_on(expected)
    if reading.compiled:
        slowest = max(reading.operations, key=lambda operation: operation.first_s)
        yield Fault.compiled.found(
            capabilities=" and ".join(reading.compiled), first_s=slowest.first_s, second_s=slowest.second_s
        )
