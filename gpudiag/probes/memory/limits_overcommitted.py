"""Limits may add up to more than a GPU has; the error comes later, at the first tensor that no longer fits.

What it does
    Makes two logical devices on the first GPU, each with a limit of the GPU's whole memory, under forced growth, so
    that next to nothing is taken. It makes a small tensor on each, and then asks `GPU:1` for a little more than NVML
    shows as free: less than its limit. That must fail, without filling memory. Both must compute afterwards.
Why it matters
    TensorFlow does not add limits up, neither those of one program nor those of several. A configuration that cannot
    work is accepted, each device is created with its full limit, and the program fails in the middle of its work.
    Without growth the devices that come first take what there is, and the last fails at its first operation.
What to do
    Add them up yourself: the `memory_limit` of every `tf.config.LogicalDeviceConfiguration(memory_limit=4096)` on a
    GPU, in MiB, and some 500 MiB for each process, must stay below what `nvidia-smi` shows as free.
"""

from __future__ import annotations

from functools import partial

from gpudiag import probe
from gpudiag.knowledge.placement import created_devices
from gpudiag.knowledge.variables import FORCE_GROWTH
from gpudiag.probe import MIB, Context, Findings, Kernel, Raised, fail, mib, warn
from gpudiag.probes.common import MATRIX, ceilings_mib, without_allocation_retry
from gpudiag.record import Record

PROBE = probe.Probe(
    needs=probe.Needs(gpus=1, free_bytes=64 * MIB),
    scope=probe.Scope.ALL_GPUS,
    exclusive=True,
    # Growth, because the limits are the whole memory: forced, because only so logical devices have it.
    env={FORCE_GROWTH: "true"},
)


class Fault(probe.KernelFaults):
    refused = warn(
        "{parts} limits of {limit_bytes} on a GPU of as much memory were refused: {error}",
        means="The limits were not accepted, as they are in every release known to us.",
        do="Keep the sum of all memory_limit on a GPU below what nvidia-smi shows as free.",
    )
    lowered = warn(
        "{device} was created with {ceiling_mib} MiB, its limit is {limit_bytes}",
        means="A logical device was created with less memory than its limit.",
        do="Go by the `Created device` lines of the log for what a logical device may take, not by memory_limit.",
    )
    no_failure = fail(
        "a tensor of {tensor_bytes} was made on GPU:1, the GPU had {free_bytes} free",
        means="A tensor larger than the free memory was made: its memory is not, or not all, on the GPU.",
        do="Keep the sum of all memory_limit on a GPU below what nvidia-smi shows as free.",
    )
    other_error = fail(
        "a tensor of {tensor_bytes}, {free_bytes} are free, raised {error}",
        means="A tensor larger than the free memory raised another error than ResourceExhaustedError.",
        do="Programs that catch tf.errors.ResourceExhaustedError miss this error: look up its text.",
    )
    not_survived = fail(
        "after a tensor that did not fit, a tensor of 16 bytes on {device} raised {error}",
        means="After a tensor that did not fit, a tensor of 16 bytes raised an error.",
        do="Do not go on after tf.errors.ResourceExhaustedError here: end the process and start a new one.",
    )


PARTS = 2
TOO_MUCH_BYTES = 16 * MIB
"""Bytes by which the tensor is larger than the free memory."""


class LimitedDevice(Record):
    """One logical device."""

    ceiling_mib: int
    """The size that TensorFlow's ``Created device`` line names; 0 without such a line."""
    failed: Raised | None
    """The error of a small tensor after the one that did not fit."""
    kernel: Kernel | None
    """A product computed after the failed tensor; None if it failed."""


class Reading(probe.GpuReading):
    """The limits that TensorFlow accepted, and the memory that was there."""

    limit_mib: int
    """The memory limit of each part in MiB."""
    refused: Raised | None
    """The error of creating the logical devices."""
    free_bytes: int = 0
    """Free memory of the split GPU by NVML, before the large tensor was requested."""
    exceeded: Raised | None = None
    """The error of a tensor on ``GPU:1`` that is larger than the free memory by :data:`TOO_MUCH_BYTES`."""
    parts: tuple[LimitedDevice, ...] = ()
    """The logical devices; empty if TensorFlow refused the limits."""

    def figure(self) -> str:
        if self.refused:
            return f"{PARTS} limits of {self.limit_mib} MiB refused"
        return f"{PARTS} x {self.limit_mib} MiB accepted, {mib(self.free_bytes)} free"


def measure(ctx: Context) -> Reading:
    tf = ctx.tf
    gpu = ctx.gpus[0]
    without_allocation_retry(ctx)
    physical = ctx.list_gpus()
    limit_mib = gpu.memory_total_bytes // MIB
    limit = tf.config.LogicalDeviceConfiguration(memory_limit=limit_mib)
    tf.config.set_visible_devices(physical[:1], "GPU")
    tf.config.set_soft_device_placement(False)
    refused = ctx.attempt(lambda: tf.config.set_logical_device_configuration(physical[0], [limit] * PARTS))
    with ctx.placements() as log:
        refused = refused or ctx.attempt(lambda: tf.config.list_logical_devices("GPU"))
    if refused:
        return Reading(limit_mib, refused)
    names = [f"GPU:{number}" for number in range(PARTS)]
    for name in names:
        with tf.device(name):
            tf.identity(tf.constant(MATRIX))
    free = gpu.memory_total_bytes - ctx.memory(gpu).used_bytes
    rows = (free + TOO_MUCH_BYTES) // MIB + 1
    with tf.device(names[-1]):
        exceeded = ctx.attempt(lambda: tf.zeros([rows, MIB // 4]))
    created, bus_ids = ceilings_mib(log.lines), created_devices(log.lines)
    parts = []
    for name in names:
        kernels: list[Kernel] = []
        failed = ctx.attempt(partial(_compute, ctx, name, bus_ids, kernels))
        parts.append(LimitedDevice(created.get(name, 0), failed, kernels[0] if kernels else None))
    return Reading(limit_mib, None, free, exceeded, tuple(parts))


def _compute(ctx: Context, device: str, bus_ids: dict[str, str], kernels: list[Kernel]) -> None:
    """Multiply matrices on ``device`` and add the product to ``kernels``."""
    with ctx.tf.device(device):
        matrix = ctx.tf.constant(MATRIX)
        product = ctx.tf.matmul(matrix, matrix)
    kernels.append(ctx.verify(product, bus_ids))


def judge(reading: Reading) -> Findings:
    limit = reading.limit_mib * MIB
    if reading.refused:
        yield Fault.refused.found(parts=PARTS, limit_bytes=limit, error=reading.refused.brief)
        return
    figures = {"tensor_bytes": reading.free_bytes + TOO_MUCH_BYTES, "free_bytes": reading.free_bytes}
    if reading.exceeded is None:
        yield Fault.no_failure.found(**figures)
    elif reading.exceeded.type != "ResourceExhaustedError":
        yield Fault.other_error.found(**figures, error=reading.exceeded.brief)
    for number, part in enumerate(reading.parts):
        device = f"GPU:{number}"
        if part.ceiling_mib != reading.limit_mib:
            yield Fault.lowered.found(device=device, ceiling_mib=part.ceiling_mib, limit_bytes=limit)
        if part.failed:
            yield Fault.not_survived.found(device=device, error=part.failed.brief)
        if part.kernel:
            yield from part.kernel.verified_on(reading.given[0])
