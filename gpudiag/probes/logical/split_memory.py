"""The parts of a split GPU do not share memory: one that is full takes nothing from the other.

What it does
    Splits the first GPU into two logical devices of 64 MiB each. It fills `GPU:0` with tensors of 8 MiB until there
    is an error, then `GPU:1` in the same way, and compares how much either gave out; the tensors on `GPU:0` must still
    hold what was written to them. NVML reports what both took together. At the end a matrix product is checked on both.
Why it matters
    The parts are one piece of hardware, and only TensorFlow's limits keep them apart. Several models in one program
    rely on it: one that grows beyond its part must not push out, or overwrite, another.
What to do
    `tf.config.set_logical_device_configuration(gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=4096), ...])`
    right after the import, the limits together some 100 MiB below what `nvidia-smi` shows as free.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from gpudiag import fix, probe
from gpudiag.model.facts import Facts
from gpudiag.model.report import Figure, Limit
from gpudiag.probe import MIB, SLACK_BYTES, Context, Findings, Kernel, MemoryUse, Raised, fail, mib, warn
from gpudiag.probes.common import MATRIX, create_devices, without_allocation_retry
from gpudiag.record import Record

LIMIT_BYTES = 64 * MIB
TENSOR_BYTES = 8 * MIB
PARTS = 2

PROBE = probe.Probe(
    needs=probe.Needs(gpus=1, free_bytes=PARTS * LIMIT_BYTES),
    scope=probe.Scope.ALL_GPUS,
    exclusive=True,
)


class Fault(probe.KernelFaults):
    wrong_count = fail(
        "TensorFlow made {count} logical GPUs, {wanted} were asked for",
        means="TensorFlow made another number of logical GPUs than was asked for.",
        do=fix.edit("tf.config.set_logical_device_configuration(gpu, [...])", "the first call after the import"),
    )
    limit_ignored = fail(
        "{what} {gave_bytes}, the limit is {limit_bytes}",
        means="A part of a split GPU gave out more than its limit.",
        do=fix.export(
            "CUDA_VISIBLE_DEVICES", "GPU-..", "do not share this GPU between models by limits; give each one its own"
        ),
    )
    not_whole = warn(
        "both parts together took {taken_bytes} of their {limit_bytes}; GPU:0 gave out {first_bytes}, "
        "GPU:1 {second_bytes}",
        means="The parts took less than their limits: the GPU was nearly full.",
        do=fix.nvidia_smi("look for what else fills this GPU, and end it"),
    )
    not_apart = fail(
        "with GPU:0 full, GPU:1 gave out {second_bytes} of {limit_bytes}, GPU:0 had given {first_bytes}",
        means="The second, with the first full, gave out less than the first had, and the GPU was not full.",
        do="Limits do not keep models apart here: give each model a separate process.",
    )
    overwritten = fail(
        "tensors on GPU:0 changed while GPU:1 was filled: {intact} of {count} are intact",
        means="Tensors on one part of a split GPU changed while the other was filled.",
        do="Trust no result of a split GPU here; give each model a separate process.",
    )
    other_error = fail(
        "filling {device} beyond its limit of {limit_bytes} raised {error}",
        means="A part of a split GPU, filled beyond its limit, raised another error than ResourceExhaustedError.",
        do="Programs that catch tf.errors.ResourceExhaustedError miss this error: look up its text.",
    )


class FilledDevice(Record):
    """One logical device that was filled."""

    tensors: int
    """The number of tensors of :data:`TENSOR_BYTES` that were made on the device."""
    ended: Raised | None
    """The error that ended the filling; None if the device gave out twice its limit and the filling stopped."""
    intact: int
    """The number of these tensors that still held their values once every part was full."""
    kernel: Kernel
    """A product that was computed last, after the tensors were deleted."""


class Reading(probe.GpuReading):
    """The memory that each part gave out."""

    parts: tuple[FilledDevice, ...]
    """The logical devices, in the order in which they were filled."""
    before: MemoryUse
    """Memory of the split GPU with a CUDA context, before the first tensor."""
    full: MemoryUse
    """Memory of the split GPU with every part full."""

    def figure(self) -> str:
        gave = " + ".join(f"{_gave(part) / MIB:.0f}" for part in self.parts)
        return f"{gave} MiB given out, limit {mib(LIMIT_BYTES)} each"

    def limits(self) -> tuple[Limit, ...]:
        return (self.before.plus(f"{PARTS} limits of {mib(LIMIT_BYTES)}", PARTS * LIMIT_BYTES),)


def _gave(part: FilledDevice) -> int:
    return part.tensors * TENSOR_BYTES


def measure(ctx: Context) -> Reading:
    tf = ctx.tf
    without_allocation_retry(ctx)
    physical = ctx.list_gpus()
    limit = tf.config.LogicalDeviceConfiguration(memory_limit=LIMIT_BYTES // MIB)
    tf.config.set_visible_devices(physical[:1], "GPU")
    tf.config.set_logical_device_configuration(physical[0], [limit] * PARTS)
    tf.config.set_soft_device_placement(False)
    created = create_devices(ctx)
    filled: list[list[Any]] = []
    ended = []
    with ctx.watch(ctx.gpus[0]) as memory:
        before = memory()
        for number, name in enumerate(created, start=1):
            filled.append([])
            ended.append(ctx.attempt(partial(_fill, tf, name, number, filled[-1])))
        full = memory()
    intact = [
        sum(bool((tensor.numpy() == number).all()) for tensor in tensors)
        for number, tensors in enumerate(filled, start=1)
    ]
    counts = [len(tensors) for tensors in filled]
    filled.clear()
    parts = []
    for name, count, error, whole in zip(created, counts, ended, intact, strict=True):
        with tf.device(name):
            matrix = tf.constant(MATRIX)
            product = tf.matmul(matrix, matrix)
        parts.append(FilledDevice(count, error, whole, ctx.verify(product, created)))
    return Reading(tuple(parts), before, full)


def _fill(tf: Any, device: str, number: int, tensors: list[Any]) -> None:
    """Put tensors full of ``number`` on ``device`` until it raises, or has given out twice its limit."""
    with tf.device(device):
        while len(tensors) < 2 * LIMIT_BYTES // TENSOR_BYTES:
            tensors.append(tf.fill([TENSOR_BYTES // 4], float(number)))


def _is_full(reading: Reading, facts: Facts) -> bool:
    """Return True if the GPU had too little memory left for another tensor, whatever the limits are."""
    totals = {gpu.pci_bus_id: gpu.memory_total_bytes for gpu in facts.nvml_devices}
    total = totals.get(reading.given[0])
    return total is not None and total - reading.full.used_bytes < TENSOR_BYTES + SLACK_BYTES


def judge(reading: Reading, facts: Facts) -> Findings:
    if len(reading.parts) != PARTS:
        yield Fault.wrong_count.found(count=len(reading.parts), wanted=PARTS)
        return
    first, second = reading.parts
    for part in reading.parts:
        device = part.kernel.device
        if part.ended is None or _gave(part) > LIMIT_BYTES:
            yield Fault.limit_ignored.found(what=f"{device} gave out", gave_bytes=_gave(part), limit_bytes=LIMIT_BYTES)
        elif part.ended.type != "ResourceExhaustedError":
            yield Fault.other_error.found(device=device, limit_bytes=LIMIT_BYTES, error=part.ended.brief)
        yield from part.kernel.verified_on(reading.given[0])
    rose = reading.full - reading.before
    gave: dict[str, Figure] = {"first_bytes": _gave(first), "second_bytes": _gave(second)}
    if rose > PARTS * LIMIT_BYTES + SLACK_BYTES:
        yield Fault.limit_ignored.found(
            what="both parts together took", gave_bytes=rose, limit_bytes=PARTS * LIMIT_BYTES
        )
    elif second.tensors < first.tensors and not _is_full(reading, facts):
        yield Fault.not_apart.found(limit_bytes=LIMIT_BYTES, **gave)
    elif rose < PARTS * LIMIT_BYTES - TENSOR_BYTES:
        yield Fault.not_whole.found(taken_bytes=rose, limit_bytes=PARTS * LIMIT_BYTES, **gave)
    if first.intact < first.tensors:
        yield Fault.overwritten.found(intact=first.intact, count=first.tensors)
