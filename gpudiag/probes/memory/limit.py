"""`memory_limit` caps what TensorFlow takes of a GPU; a tensor above it raises an error that a program survives.

What it does
    Makes one logical device with a limit of 128 MiB on every GPU. On each it makes a small tensor, which takes the
    whole limit, then asks for 256 MiB, and afterwards for 64 MiB and a matrix product. NVML reports the memory in use
    on the device after each step.
Why it matters
    The limit is how several programs share one GPU, and how a program is tested for a smaller one. A program that
    meets it must be able to go on: with a smaller batch, or by saving what it has.
What to do
    `tf.config.set_logical_device_configuration(gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=4096)])`, in
    MiB, right after the import. Leave room beside it: CUDA context and libraries (some 100 MiB) are not counted.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from gpudiag import fix, probe
from gpudiag.knowledge.variables import ALLOCATOR, FORCE_GROWTH
from gpudiag.model.facts import Facts
from gpudiag.model.report import Limit
from gpudiag.probe import MIB, SLACK_BYTES, Context, Findings, Kernel, Raised, fail, mib, warn
from gpudiag.probes.common import MATRIX, Limited, LimitFaults, create_devices, without_allocation_retry

PROBE = probe.Probe(
    needs=probe.Needs(gpus=1, free_bytes=256 * MIB),
    scope=probe.Scope.ALL_GPUS,
    sampled=True,
    exclusive=True,
    # Were the limit ignored, TensorFlow would take all that is free; this makes it stop at 512 MiB.
    env={"TF_PER_DEVICE_MEMORY_LIMIT_MB": "512"},
    honours=(ALLOCATOR, FORCE_GROWTH),
)


class Fault(LimitFaults):
    limit_ignored = fail(
        "{device} took {taken_bytes}, its limit is {limit_bytes}; a tensor of {beyond_bytes} {ended}",
        means="TensorFlow took more than the limit, or gave out memory beyond it.",
        do=fix.export(
            "CUDA_VISIBLE_DEVICES", "GPU-..", "do not share this GPU between programs by limits; give each its own"
        ),
    )
    no_limit = warn(
        "TF_GPU_ALLOCATOR={allocator} knows no limit: {device} gave out {beyond_bytes}, its limit is {limit_bytes}",
        means="The chosen TF_GPU_ALLOCATOR knows no limit: a device gave out more.",
        do=fix.unset("TF_GPU_ALLOCATOR", note="to have memory limits honoured"),
    )
    not_survived = fail(
        "after an allocation above the limit of {limit_bytes}, a tensor of {within_bytes} or a matrix product on "
        "{device} raised {error}",
        means="After an allocation above the limit, a small tensor or a matrix product raised an error.",
        do="Do not go on after tf.errors.ResourceExhaustedError here: end the process and start a new one.",
    )


LIMIT_BYTES = 128 * MIB
BEYOND_BYTES = 2 * LIMIT_BYTES
WITHIN_BYTES = LIMIT_BYTES // 2


class Survivor(Limited):
    """One GPU with one logical device on it."""

    within: Raised | None
    """The error of a tensor of :data:`WITHIN_BYTES`, or of the product, after twice the limit was requested."""


class Reading(probe.GpuReading):
    """The memory that was taken of each GPU."""

    devices: tuple[Survivor, ...]
    """The GPUs, in the order of ``given``."""

    def figure(self) -> str:
        most = max(survivor.first - survivor.before for survivor in self.devices)
        refused = "refused" if all(survivor.exceeded for survivor in self.devices) else "given out"
        return f"{mib(most)} taken, {mib(BEYOND_BYTES)} {refused}, limit {mib(LIMIT_BYTES)}"

    def limits(self) -> tuple[Limit, ...]:
        pairs = zip(self.given, self.devices, strict=False)
        return tuple(device.before.plus("memory_limit", LIMIT_BYTES, bus_id) for bus_id, device in pairs)


def measure(ctx: Context) -> Reading:
    tf = ctx.tf
    without_allocation_retry(ctx)
    for device in ctx.list_gpus():
        limit = tf.config.LogicalDeviceConfiguration(memory_limit=LIMIT_BYTES // MIB)
        tf.config.set_logical_device_configuration(device, [limit])
    tf.config.set_soft_device_placement(False)
    created = create_devices(ctx)
    pools, matrices = [], []
    for number, gpu in enumerate(ctx.gpus):
        with ctx.watch(gpu) as memory, tf.device(f"GPU:{number}"):
            before = memory()
            matrices.append(tf.identity(tf.constant(MATRIX)))
            first = memory()
            exceeded = ctx.attempt(lambda: tf.zeros([BEYOND_BYTES // 4]))
            last = memory()
            within = ctx.attempt(lambda: tf.zeros([WITHIN_BYTES // 4]))
        pools.append((before, first, last, exceeded, within))
    devices = []
    # Last: the matrix library takes its own memory beside the limit.
    for number, ((before, first, last, exceeded, within), matrix) in enumerate(zip(pools, matrices, strict=True)):
        device = f"GPU:{number}"
        kernels: list[Kernel] = []
        failed = within or ctx.attempt(partial(_multiply, ctx, device, matrix, created, kernels))
        kernel = kernels[0] if kernels else Kernel(device, created[device], correct=False)
        devices.append(Survivor(before, first, last, exceeded, kernel, failed))
    return Reading(tuple(devices))


def _multiply(ctx: Context, device: str, matrix: Any, created: dict[str, str], kernels: list[Kernel]) -> None:
    """Multiply on ``device`` and add the kernel to ``kernels``."""
    with ctx.tf.device(device):
        product = ctx.tf.matmul(matrix, matrix)
    kernels.append(ctx.verify(product, created))


def judge(reading: Reading, facts: Facts) -> Findings:
    for device, pci_bus_id in zip(reading.devices, reading.given, strict=True):
        least = LIMIT_BYTES - SLACK_BYTES
        yield from device.judged(LIMIT_BYTES, facts, least, Fault.limit_ignored, Fault.no_limit)
        if device.within:
            figures = {"limit_bytes": LIMIT_BYTES, "within_bytes": WITHIN_BYTES}
            yield Fault.not_survived.found(**figures, device=device.kernel.device, error=device.within.brief)
            continue
        yield from device.kernel.verified_on(pci_bus_id)
