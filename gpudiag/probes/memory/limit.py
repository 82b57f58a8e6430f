"""`memory_limit` caps what TensorFlow takes of a GPU; a tensor above it raises an error that a program survives.

What it does
    Makes one logical device with a limit of 128 MiB on every GPU. On each it makes a small tensor, which takes the
    whole limit, then asks for 256 MiB, and afterwards for 64 MiB and a matrix product. NVML tells the memory in use on
    the device after each step.
Why it matters
    The limit is how several programs share one GPU, and how a program is tested for a smaller one. A program that
    meets it must be able to go on: with a smaller batch, or by saving what it has.
What to do
    `tf.config.set_logical_device_configuration(gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=4096)])`, in
    MiB, right after the import. Leave room beside it: CUDA context and libraries (some 100 MiB) are not counted.
"""

from __future__ import annotations

from gpudiag import probe
from gpudiag.hostfacts import Facts
from gpudiag.model import Figure
from gpudiag.probe import MIB, SLACK_BYTES, Context, Findings, Kernel, MemoryUse, Raised, fail, mib, note, warn
from gpudiag.probes.common import MATRIX, WITHOUT_POOL, create_devices, without_allocation_retry
from gpudiag.record import Record

PROBE = probe.Probe(
    needs=probe.Needs(gpus=1, free_bytes=256 * MIB),
    scope=probe.Scope.ALL_GPUS,
    exclusive=True,
    # Were the limit ignored, TensorFlow would take all that is free; this makes it stop at 512 MiB.
    env={"TF_PER_DEVICE_MEMORY_LIMIT_MB": "512"},
)


class Fault(probe.KernelFaults):
    limit_ignored = fail(
        "{device} took {taken_bytes}, its limit is {limit_bytes}; a tensor of {beyond_bytes} {ended}",
        means="TensorFlow took more than the limit, or gave out memory beyond it.",
        do="Do not share this GPU between programs by limits; give each its own: export CUDA_VISIBLE_DEVICES=GPU-...",
    )
    no_limit = warn(
        "TF_GPU_ALLOCATOR={allocator} knows no limit: {device} gave out {beyond_bytes}, its limit is {limit_bytes}",
        do="To have memory limits honoured: unset TF_GPU_ALLOCATOR",
    )
    not_at_once = warn(
        "the first tensor on {device} took {taken_bytes} of its limit of {limit_bytes}",
        means="The first tensor took less than the limit: the GPU was nearly full.",
        do="Look in nvidia-smi for what else fills this GPU, and end it.",
    )
    overridden = note(
        "TF_FORCE_GPU_ALLOW_GROWTH=true decides when memory is taken: "
        "the first tensor on {device} took {taken_bytes} of its limit of {limit_bytes}",
        do="To have the whole limit taken at once: unset TF_FORCE_GPU_ALLOW_GROWTH",
    )
    other_error = fail(
        "asking {device} for {beyond_bytes}, its limit is {limit_bytes}, raised {error}",
        do="Programs that catch tf.errors.ResourceExhaustedError miss this error: look up its text.",
    )
    not_survived = fail(
        "after an allocation above the limit of {limit_bytes}, {within_bytes} on {device} raised {error}",
        do="Do not go on after tf.errors.ResourceExhaustedError here: end the process and start a new one.",
    )


LIMIT_BYTES = 128 * MIB
BEYOND_BYTES = 2 * LIMIT_BYTES
WITHIN_BYTES = LIMIT_BYTES // 2


class Limited(Record):
    """One GPU with one logical device on it."""

    before: MemoryUse
    """After the CUDA context was made, before the first tensor."""
    first: MemoryUse
    """After a tensor of 16 bytes."""
    last: MemoryUse
    """After :data:`BEYOND_BYTES` were asked for."""
    exceeded: Raised | None
    """What asking for them raised."""
    within: Raised | None
    """What a tensor of :data:`WITHIN_BYTES` raised afterwards."""
    kernel: Kernel
    """Run last."""


class Reading(probe.GpuReading):
    """What was taken of each GPU."""

    devices: tuple[Limited, ...]
    """In the order of ``given``."""

    def figure(self) -> str:
        most = max((one.first - one.before) for one in self.devices)
        refused = "refused" if all(one.exceeded for one in self.devices) else "given out"
        return f"{mib(most)} taken, {mib(BEYOND_BYTES)} {refused}, limit {mib(LIMIT_BYTES)}"


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
    # Last: the matrix library takes memory of its own beside the limit.
    for number, (pool, matrix) in enumerate(zip(pools, matrices, strict=True)):
        with tf.device(f"GPU:{number}"):
            product = tf.matmul(matrix, matrix)
        devices.append(Limited(*pool, ctx.verify(product, created)))
    return Reading(tuple(devices))


def judge(reading: Reading, facts: Facts) -> Findings:
    allocator = facts.variables.get("TF_GPU_ALLOCATOR", "")
    forced = facts.variables.get("TF_FORCE_GPU_ALLOW_GROWTH") == "true"
    for one, pci_bus_id in zip(reading.devices, reading.given, strict=True):
        first, last = (one.first - one.before), (one.last - one.before)
        figures: dict[str, Figure] = {"device": one.kernel.device, "limit_bytes": LIMIT_BYTES}
        figures["beyond_bytes"] = BEYOND_BYTES
        if forced:
            yield Fault.overridden.found(**figures, taken_bytes=first)
        elif allocator not in WITHOUT_POOL and first < LIMIT_BYTES - SLACK_BYTES:
            yield Fault.not_at_once.found(**figures, taken_bytes=first)
        if one.exceeded is None or max(first, last) > LIMIT_BYTES + SLACK_BYTES:
            if allocator in WITHOUT_POOL:
                yield Fault.no_limit.found(**figures, allocator=allocator)
            else:
                ended = "was refused" if one.exceeded else "was given out"
                yield Fault.limit_ignored.found(**figures, taken_bytes=max(first, last), ended=ended)
        elif one.exceeded.type != "ResourceExhaustedError":
            yield Fault.other_error.found(**figures, error=one.exceeded.brief)
        if one.within:
            yield Fault.not_survived.found(**figures, within_bytes=WITHIN_BYTES, error=one.within.brief)
        yield from one.kernel.verified_on(pci_bus_id)
