"""Memory growth that differs between GPUs is refused before anything is taken, and can be put right afterwards.

What it does
    Calls `tf.config.experimental.set_memory_growth(gpu, True)` for the first of the visible GPUs only and lets
    TensorFlow make its devices, which must raise. NVML reports whether memory was taken. It then sets growth for the
    other GPUs too, puts a small tensor on every GPU, and computes and checks a matrix product on each.
Why it matters
    Growth is one setting for the whole process. A program that sets it for the first GPU works on a machine with one
    and fails, at its first tensor and not at the call, on a machine with two.
What to do
    Right after the import: `for gpu in tf.config.list_physical_devices("GPU"):
    tf.config.experimental.set_memory_growth(gpu, True)`. GPUs hidden with `tf.config.set_visible_devices` do not count.
"""

from __future__ import annotations

from gpudiag import fix, probe
from gpudiag.knowledge.placement import created_devices
from gpudiag.probe import MIB, SLACK_BYTES, Context, Findings, Kernel, MemoryUse, Raised, fail, refuse_disturbance, warn
from gpudiag.probes.common import MATRIX
from gpudiag.record import Record

PROBE = probe.Probe(
    needs=probe.Needs(gpus=2, free_bytes=128 * MIB),
    scope=probe.Scope.ALL_GPUS,
    sampled=True,
    exclusive=True,
    # Were growth ignored, TensorFlow would take all that is free of every GPU; this makes it stop at 128 MiB of each.
    env={"TF_PER_DEVICE_MEMORY_LIMIT_MB": "128"},
)


class Fault(probe.KernelFaults):
    no_error = warn(
        "TensorFlow started with growth on for 1 of {gpus} GPUs and off for the others",
        means="TensorFlow started with settings that differ; which of them holds is not known.",
        do=fix.edit("tf.config.experimental.set_memory_growth(gpu, True)", "set it for every GPU"),
    )
    other_error = warn(
        '{error} (expected ValueError "Memory growth cannot differ between GPU devices")',
        means="Growth for some GPUs alone raised another error than in TensorFlow 2.18 to 2.21.",
        do="Do not match on the type or text of this error; set growth for every GPU.",
    )
    taken = warn(
        "TensorFlow refused to start and took {taken_bytes} of {pci_bus_id}",
        means="TensorFlow refused to start with growth for some GPUs alone, but took memory.",
        do="End the program after this error: what was taken stays taken until then.",
    )
    not_cured = fail(
        "with growth on for all {gpus} GPUs: {error}",
        means="With growth on for all GPUs TensorFlow raised an error.",
        do="Set growth for every GPU in the first lines after `import tensorflow`, before anything that can fail.",
    )
    growth_ignored = fail(
        "with growth a tensor of 16 bytes on {device} took {taken_bytes}, expected about 2 MiB",
        means="With growth on for all GPUs a tensor of 16 bytes took much memory.",
        do=fix.export("TF_FORCE_GPU_ALLOW_GROWTH", "true", "force it"),
    )


TEXT = "Memory growth cannot differ"


class NvmlUse(Record):
    """Memory and work of one GPU, by NVML."""

    start: MemoryUse
    """Memory before TensorFlow made its devices."""
    refused: MemoryUse
    """Memory after TensorFlow raised."""
    made: MemoryUse | None = None
    """Memory after TensorFlow made its devices, with growth on for all GPUs; None if it still raised."""
    first: MemoryUse | None = None
    """Memory after a tensor of 16 bytes on every GPU."""
    kernel: Kernel | None = None


class Reading(probe.GpuReading):
    """The effect of setting growth for the first GPU only."""

    raised: Raised | None
    """The error of making the devices with growth on for the first GPU only."""
    raised_again: Raised | None
    """The error of making the devices with growth on for all GPUs."""
    uses: tuple[NvmlUse, ...]
    """The memory of each GPU, in the order of ``given``."""

    def figure(self) -> str:
        again = "still refused" if self.raised_again else "starts"
        return f"1 of {len(self.given)} GPUs: {'refused' if self.raised else 'starts'}; all: {again}"


def measure(ctx: Context) -> Reading:
    tf = ctx.tf
    devices = ctx.list_gpus()
    tf.config.experimental.set_memory_growth(devices[0], True)
    start = [ctx.memory(gpu) for gpu in ctx.gpus]
    with ctx.placements() as log:
        raised = ctx.attempt(lambda: tf.config.list_logical_devices("GPU"))
        refused = [ctx.memory(gpu) for gpu in ctx.gpus]
        again = raised and ctx.attempt(lambda: _cure(ctx, devices[1:]))
    if again:
        return Reading(raised, again, tuple(map(NvmlUse, start, refused)))
    created = created_devices(log.lines)
    tf.config.set_soft_device_placement(False)
    made = [ctx.memory(gpu) for gpu in ctx.gpus]
    matrices = []
    for number in range(len(ctx.gpus)):
        with tf.device(f"/GPU:{number}"):
            matrices.append(tf.identity(tf.constant(MATRIX)))
    first = [ctx.memory(gpu) for gpu in ctx.gpus]
    uses = []
    # Last: the matrix library takes its own memory beside the pool.
    for number, matrix in enumerate(matrices):
        refuse_disturbance(start[number], refused[number], made[number], first[number])
        with tf.device(f"/GPU:{number}"):
            product = tf.matmul(matrix, matrix)
        kernel = ctx.verify(product, created)
        uses.append(NvmlUse(start[number], refused[number], made[number], first[number], kernel))
    return Reading(raised, None, tuple(uses))


def _cure(ctx: Context, others: list[object]) -> None:
    for device in others:
        ctx.tf.config.experimental.set_memory_growth(device, True)
    ctx.tf.config.list_logical_devices("GPU")


def judge(reading: Reading) -> Findings:
    raised, count = reading.raised, len(reading.given)
    if raised is None:
        yield Fault.no_error.found(gpus=count)
    elif raised.type != "ValueError" or TEXT not in raised.message:
        yield Fault.other_error.found(error=raised.brief)
    if reading.raised_again:
        yield Fault.not_cured.found(gpus=count, error=reading.raised_again.brief)
    for use, pci_bus_id in zip(reading.uses, reading.given, strict=True):
        early = use.refused - use.start
        if raised and early > SLACK_BYTES:
            yield Fault.taken.found(taken_bytes=early, pci_bus_id=pci_bus_id)
        if use.kernel is None or use.made is None or use.first is None:
            continue
        rise = use.first - use.made
        if raised and rise > SLACK_BYTES:
            yield Fault.growth_ignored.found(device=use.kernel.device, taken_bytes=rise)
        yield from use.kernel.verified_on(pci_bus_id)
