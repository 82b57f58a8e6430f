"""Growth and a split exclude each other: on a split GPU growth is refused, and a split after growth undoes it.

What it does
    Switches memory growth on for the first GPU and splits it into two logical devices of 128 MiB, in this order, and
    records what either call raised. Then it asks for growth once more, on the split GPU. A small tensor on `GPU:0`
    shows, by NVML, whether the memory grows or the limit is taken at once; a matrix product is computed and checked.
Why it matters
    Only one order is an error: `set_memory_growth` after the split raises ValueError. Growth first and then the split
    is accepted silently, `get_memory_growth` goes on saying True, and growth is off for every GPU.
What to do
    Choose one. To have both: `export TF_FORCE_GPU_ALLOW_GROWTH=true`, which the allocator reads itself, and
    `tf.config.set_logical_device_configuration(gpu, [...])` for the limits.
"""

from __future__ import annotations

from gpudiag import fix, probe
from gpudiag.model.report import Limit
from gpudiag.probe import MIB, SLACK_BYTES, Context, Findings, Kernel, MemoryUse, Raised, fail, note, warn
from gpudiag.probes.common import MATRIX, create_devices
from gpudiag.record import Record

LIMIT_BYTES = 128 * MIB

PROBE = probe.Probe(
    needs=probe.Needs(gpus=1, free_bytes=2 * LIMIT_BYTES),
    scope=probe.Scope.ALL_GPUS,
    exclusive=True,
)


class Fault(probe.KernelFaults):
    no_error = fail(
        "set_memory_growth(gpu, True) was accepted on a split GPU (expected ValueError)",
        means="Growth was accepted on a split GPU; whether it has an effect is not known.",
        do="Do not rely on an error: use either set_memory_growth or set_logical_device_configuration for a GPU.",
    )
    other_error = warn(
        'set_memory_growth(gpu, True) on a split GPU: {error} (expected ValueError "Cannot set memory growth on device '
        'when virtual devices configured")',
        means="set_memory_growth on a split GPU raised another error than in TensorFlow 2.18 to 2.21.",
        do="Do not match on the type or text of this error; report to gpudiag this release of TensorFlow.",
    )
    split_refused = warn(
        "set_logical_device_configuration after set_memory_growth(gpu, True) raised {error}",
        means="The split after growth raised an error, as it does in no release known to us.",
        do=fix.export("TF_FORCE_GPU_ALLOW_GROWTH", "true", "leave set_memory_growth out if a GPU is split"),
    )
    growth_kept = note(
        "growth outlived the split: the first tensor on GPU:0 took {taken_bytes} of its limit of {limit_bytes}",
        means="The split was accepted and the memory grows; what this probe says does not hold here.",
        do=fix.export("TF_FORCE_GPU_ALLOW_GROWTH", "true", "for the same on every release"),
    )


class Split(Record):
    """Growth and a split, both requested for one GPU."""

    split: Raised | None
    """The error of splitting the GPU after growth was switched on for it."""
    growth: Raised | None
    """The error of switching growth on after the GPU was split."""
    before: MemoryUse
    """Memory after the CUDA context was made, before the first tensor."""
    first: MemoryUse
    """Memory after a tensor of 16 bytes on ``GPU:0``."""
    kernel: Kernel


class Reading(probe.GpuReading):
    """The errors raised, and the memory taken."""

    outcome: Split

    def figure(self) -> str:
        refused = "refused" if self.outcome.growth else "accepted"
        undone = "kept" if _grew(self.outcome) else "undone"
        return f"growth {refused} after the split, {undone} by it"

    def limits(self) -> tuple[Limit, ...]:
        return (self.outcome.before.plus("limit of GPU:0", LIMIT_BYTES),)


def measure(ctx: Context) -> Reading:
    tf = ctx.tf
    device, gpu = ctx.list_gpus()[0], ctx.gpus[0]
    limit = tf.config.LogicalDeviceConfiguration(memory_limit=LIMIT_BYTES // MIB)
    tf.config.set_visible_devices([device], "GPU")  # of another one the first tensor could take nearly all
    tf.config.experimental.set_memory_growth(device, True)
    split = ctx.attempt(lambda: tf.config.set_logical_device_configuration(device, [limit] * 2))
    if split:
        tf.config.experimental.set_memory_growth(device, False)
        tf.config.set_logical_device_configuration(device, [limit] * 2)
    growth = ctx.attempt(lambda: tf.config.experimental.set_memory_growth(device, True))
    tf.config.set_soft_device_placement(False)
    created = create_devices(ctx)
    with ctx.watch(gpu) as memory, tf.device("/GPU:0"):
        before = memory()
        matrix = tf.identity(tf.constant(MATRIX))
        first = memory()
        # Not before: the matrix library takes its own memory beside the limit.
        product = tf.matmul(matrix, matrix)
    return Reading(Split(split, growth, before, first, ctx.verify(product, created)))


def _grew(outcome: Split) -> bool:
    return (outcome.first - outcome.before) < LIMIT_BYTES - SLACK_BYTES


def judge(reading: Reading) -> Findings:
    outcome = reading.outcome
    if outcome.growth is None:
        yield Fault.no_error.found()
    elif outcome.growth.type != "ValueError" or "Cannot set memory growth on device" not in outcome.growth.message:
        yield Fault.other_error.found(error=outcome.growth.brief)
    if outcome.split:
        yield Fault.split_refused.found(error=outcome.split.brief)
    elif _grew(outcome):
        rose = outcome.first - outcome.before
        yield Fault.growth_kept.found(taken_bytes=rose, limit_bytes=LIMIT_BYTES)
    yield from outcome.kernel.verified_on(reading.given[0])
