"""`per_process_gpu_memory_fraction` above 1.0 is legal: TensorFlow may then use more memory than the GPU has.

What it does
    Opens a `tf.compat.v1.Session` on the first GPU with a fraction of 1.1 and growth, copies a small tensor to it, and
    makes a tensor of 1.05 times the GPU's memory that nothing is written to: such memory is managed by the driver and
    takes no place on the GPU before it is used. TensorFlow's `Created device` line has the ceiling. A matrix product
    is computed and checked on the GPU.
Why it matters
    With a fraction above 1.0 TensorFlow's memory is managed by the driver (`cuMemAllocManaged`), which moves it between
    host and GPU: programs beyond the GPU's memory run, and slowly. A typing error (`1.5` for `.15`) has the same effect
    and gives no error.
What to do
    In the first session of the process: `tf.compat.v1.GPUOptions(per_process_gpu_memory_fraction=1.1,
    allow_growth=True)`. Outside a session, first of all: `tf.compat.v1.disable_eager_execution()`, then
    `tf.compat.v1.enable_eager_execution(config=tf.compat.v1.ConfigProto(gpu_options=...))`.
"""

from __future__ import annotations

import os
from typing import Any

from gpudiag import fix, probe
from gpudiag.knowledge.placement import created_devices
from gpudiag.model.facts import Facts
from gpudiag.probe import MIB, SLACK_BYTES, Context, Findings, Kernel, MemoryUse, Raised, fail, mib, warn
from gpudiag.probes.common import MATRIX, ceilings_mib, is_partitioned, is_square
from gpudiag.record import Record

PROBE = probe.Probe(
    needs=probe.Needs(gpus=1, free_bytes=512 * MIB),
    scope=probe.Scope.ALL_GPUS,
    exclusive=True,
)


class Fault(probe.KernelFaults):
    refused = fail(
        "with a fraction of {fraction:.1f} TensorFlow raised {error}",
        means="TensorFlow refused a fraction above 1.",
        do=fix.edit("tf.compat.v1.GPUOptions(per_process_gpu_memory_fraction=1.0)", "use a fraction of at most 1.0"),
    )
    too_old = warn(
        "a GPU of compute capability below 6.0 supports no fraction above 1.0: {error}",
        means="A GPU of compute capability below 6.0 supports no fraction above 1.",
        do=fix.edit("tf.compat.v1.GPUOptions(per_process_gpu_memory_fraction=1.0)", "use a fraction of at most 1.0"),
    )
    other_ceiling = warn(
        "TensorFlow may take {ceiling_mib} MiB, a fraction of {fraction:.1f} of {total_bytes} is {expected_bytes}",
        means="TensorFlow may take another part of the memory than the fraction says.",
        do="Set the fraction in the first session of the process: another one later is ignored silently.",
    )
    taken_at_once = fail(
        "with growth the first tensor took {taken_bytes}, expected about 2 MiB",
        means="With growth the first tensor took much memory at once.",
        do=fix.export("TF_FORCE_GPU_ALLOW_GROWTH", "true", "force growth"),
    )
    no_oversubscription = warn(
        "a tensor of {beyond_bytes} under a ceiling of {ceiling_mib} MiB was refused: {error}",
        means="A tensor larger than the GPU's memory, but below the ceiling, was refused.",
        do="Count on no more than the GPU's {total_bytes}: a driver under WSL, or a vGPU, may give no more.",
    )


FRACTION = 1.1
BEYOND = 1.05
_OLD = "compute capability lower than 6.0"


class OversizedPool(Record):
    """The memory that the session took, by NVML."""

    ceiling_mib: int
    """The most that the device may take, according to TensorFlow; 0 if it named no GPU:0."""
    before: MemoryUse
    """Memory after the CUDA context was made, before the first tensor."""
    first: MemoryUse
    """Memory after the first tensor, of 16 bytes."""
    beyond_mib: int
    """Size of the tensor that is larger than the GPU's memory."""
    exceeded: Raised | None
    """The error of making the tensor that is larger than the GPU's memory."""
    kernel: Kernel


class Reading(probe.GpuReading):
    """The effect of a fraction above 1.0."""

    total_bytes: int
    """Memory of the first GPU, by NVML."""
    pool: OversizedPool | None = None
    """Memory of that GPU; None if TensorFlow raised."""
    raised: Raised | None = None
    """The error of opening the session, or of its first tensor."""

    def figure(self) -> str:
        if self.pool is None:
            return f"refused with {self.raised.type if self.raised else 'nothing'}"
        gib = self.pool.ceiling_mib / 1024
        return f"ceiling {gib:.1f} GiB, {mib(self.pool.first - self.pool.before)} at first"


def measure(ctx: Context) -> Reading:
    gpu = ctx.gpus[0]
    # With several GPUs visible, drivers without on-demand paging (WSL) put all managed memory into the host's.
    os.environ["CUDA_VISIBLE_DEVICES"] = gpu.uuid
    ctx.list_gpus(given=1)
    pools: list[OversizedPool] = []
    raised = ctx.attempt(lambda: pools.append(_use(ctx)))
    if raised or not pools:
        return Reading(gpu.memory_total_bytes, None, raised)
    return Reading(gpu.memory_total_bytes, pools[0])


def _use(ctx: Context) -> OversizedPool:
    tf, v1, gpu = ctx.tf, ctx.tf.compat.v1, ctx.gpus[0]
    options = v1.GPUOptions(per_process_gpu_memory_fraction=FRACTION, allow_growth=True)
    # An allocation that fails is otherwise tried again for 10 s.
    options.experimental.disallow_retry_on_allocation_failure = True
    with tf.Graph().as_default(), tf.device("/GPU:0"):
        matrix = v1.placeholder(tf.float32, [2, 2])
        copied = tf.identity(matrix)
        product = tf.matmul(matrix, matrix)
        shape = v1.placeholder(tf.int32, [2])
        untouched = tf.raw_ops.Empty(shape=shape, dtype=tf.uint8, init=False)
        with ctx.placements() as log:
            session: Any = v1.Session(config=v1.ConfigProto(gpu_options=options))
        ceiling_mib = ceilings_mib(log.lines).get("GPU:0", 0)
        beyond_mib = int(ceiling_mib / FRACTION * BEYOND)
        with session, ctx.watch(gpu) as memory:
            before = memory()
            session.run(copied, {matrix: MATRIX})
            first = memory()
            exceeded = ctx.attempt(lambda: session.run(untouched.op, {shape: [beyond_mib, MIB]}))
            # Not before: the matrix library takes its own memory beside the pool.
            correct = is_square(session.run(product, {matrix: MATRIX}))
    kernel = Kernel("GPU:0", created_devices(log.lines).get("GPU:0", ""), correct)
    return OversizedPool(ceiling_mib, before, first, beyond_mib, exceeded, kernel)


def judge(reading: Reading, facts: Facts) -> Findings:
    pool = reading.pool
    if reading.raised and _OLD in reading.raised.message:
        yield Fault.too_old.found(error=reading.raised.brief)
    elif reading.raised:
        yield Fault.refused.found(fraction=FRACTION, error=reading.raised.brief)
    if pool is None:
        return
    partial = is_partitioned(facts, reading.given[0])
    total_mib = pool.ceiling_mib / FRACTION if partial else reading.total_bytes / MIB
    figures = {"ceiling_mib": pool.ceiling_mib, "total_bytes": total_mib * MIB}
    # CUDA counts a little less than NVML: what the driver keeps for itself.
    if not 0.95 * FRACTION * total_mib < pool.ceiling_mib <= FRACTION * total_mib + 1:
        yield Fault.other_ceiling.found(**figures, fraction=FRACTION, expected_bytes=FRACTION * total_mib * MIB)
    rise = pool.first - pool.before
    if rise > SLACK_BYTES:
        yield Fault.taken_at_once.found(taken_bytes=rise)
    if pool.exceeded:
        yield Fault.no_oversubscription.found(**figures, beyond_bytes=pool.beyond_mib * MIB, error=pool.exceeded.brief)
    yield from pool.kernel.verified_on(reading.given[0])
