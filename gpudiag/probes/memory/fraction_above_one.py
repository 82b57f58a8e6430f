"""`per_process_gpu_memory_fraction` above 1.0 is legal: TensorFlow may then use more memory than the GPU has.

What it does
    Opens a `tf.compat.v1.Session` on the first GPU with a fraction of 1.1 and growth, copies a small tensor to it, and
    makes a tensor of 1.05 times the GPU's memory that nothing is written to: such memory is managed by the driver and
    takes no place on the GPU before it is used. TensorFlow's `Created device` line tells the ceiling. A matrix product
    is computed and checked on the GPU.
Why it matters
    With a fraction above 1.0 TensorFlow's memory is managed by the driver (`cuMemAllocManaged`), which moves it between
    host and GPU: programs beyond the GPU's memory run, and slowly. A typing error (`1.5` for `.15`) has the same effect
    and gives no error.
What a failure means
    `refused`: TensorFlow could not work with the fraction, though it can with one up to 1.0.
    `too_old`: the GPU is too old for it (compute capability below 6.0).
    `other_ceiling`: TensorFlow made the device with another ceiling than the fraction stands for.
    `taken_at_once`: the first tensor took much more than it needs, in spite of growth.
    `no_oversubscription`: a tensor larger than the GPU's memory, but below the ceiling, was refused.
    `gpu_not_seen`, `other_gpu`, `wrong_result`: TensorFlow does not use the GPU that it was given, or not correctly.
What to do
    In the first session of the process: `tf.compat.v1.GPUOptions(per_process_gpu_memory_fraction=1.1,
    allow_growth=True)`. Outside a session, first of all: `tf.compat.v1.disable_eager_execution()`, then
    `tf.compat.v1.enable_eager_execution(config=tf.compat.v1.ConfigProto(gpu_options=...))`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from gpudiag import probe
from gpudiag.hostfacts import Facts
from gpudiag.model import Limits, Severity
from gpudiag.placement import created_devices
from gpudiag.probe import Case, Context, Judgement, Kind, MemoryUse, Needs, Raised, Scope
from gpudiag.probes.common import (
    GPU_NOT_SEEN,
    MATRIX,
    MIB,
    OTHER_GPU,
    SLACK_BYTES,
    WRONG_RESULT,
    Kernel,
    ceilings_mib,
    is_partitioned,
    is_square,
    judge_kernel,
    partitioned,
    refuse_disturbance,
    taken,
)
from gpudiag.record import Record

PROBE = probe.Probe(
    needs=Needs(gpus=1, free_bytes=512 * MIB),
    scope=Scope.ALL_GPUS,
    exclusive=True,
    # They would decide in place of the options under test: memory.growth_forced and memory.fraction tell. A limit by
    # TF_PER_DEVICE_MEMORY_LIMIT_MB counts managed memory too.
    env={"TF_FORCE_GPU_ALLOW_GROWTH": None, "TF_GPU_ALLOCATOR": None, "TF_PER_DEVICE_MEMORY_LIMIT_MB": None},
)

REFUSED = Kind(
    "refused",
    Severity.FAIL,
    "with a fraction of {fraction:.1f} TensorFlow raised {error}",
    "Use a fraction of at most 1.0: tf.compat.v1.GPUOptions(per_process_gpu_memory_fraction=1.0)",
)
TOO_OLD = Kind(
    "too_old",
    Severity.WARNING,
    "a GPU of compute capability below 6.0 knows no fraction above 1.0: {error}",
    "Use a fraction of at most 1.0: tf.compat.v1.GPUOptions(per_process_gpu_memory_fraction=1.0)",
)
OTHER_CEILING = Kind(
    "other_ceiling",
    Severity.WARNING,
    "TensorFlow may take {ceiling_mib} MiB, a fraction of {fraction:.1f} of {total_mib:.0f} MiB is {expected_mib:.0f}",
    "Set the fraction in the first session of the process: another one later is ignored without a word.",
)
TAKEN_AT_ONCE = Kind(
    "taken_at_once",
    Severity.FAIL,
    "with growth the first tensor took {taken_mib:.0f} MiB, expected about 2 MiB",
    "Force growth: export TF_FORCE_GPU_ALLOW_GROWTH=true",
)
NO_OVERSUBSCRIPTION = Kind(
    "no_oversubscription",
    Severity.WARNING,
    "a tensor of {beyond_mib:.0f} MiB under a ceiling of {ceiling_mib} MiB was refused: {error}",
    "Count on no more than the GPU's {total_mib:.0f} MiB: a driver under WSL, or a virtual GPU, may give no more.",
)

FRACTION = 1.1
BEYOND = 1.05
_OLD = "compute capability lower than 6.0"


class Pool(Record):
    """What the session took, by NVML."""

    ceiling_mib: int
    """What TensorFlow says the device may take at most; 0 where it named no GPU:0."""
    before: MemoryUse
    """After the CUDA context was made, before the first tensor."""
    first: MemoryUse
    """After the first tensor, of 16 bytes."""
    beyond_mib: int
    """Size of the tensor that is larger than the GPU's memory."""
    exceeded: Raised | None
    """What making it raised."""
    kernel: Kernel


class Reading(probe.Reading):
    """What a fraction above 1.0 led to."""

    given: tuple[str, ...]
    """PCI bus ids of the GPUs that the probe was given."""
    seen: bool
    """True: TensorFlow lists the first of them, the only one that it was let see."""
    total_bytes: int = 0
    """Memory of the GPU, by NVML."""
    pool: Pool | None = None
    """None where TensorFlow lists no GPU, or raised."""
    raised: Raised | None = None
    """What opening the session, or its first tensor, raised."""

    def figure(self) -> str:
        if not self.seen:
            return f"TensorFlow lists 0 of {len(self.given)} GPUs"
        if self.pool is None:
            return f"refused with {self.raised.type if self.raised else 'nothing'}"
        gib = self.pool.ceiling_mib / 1024
        return f"ceiling {gib:.1f} GiB, {taken(self.pool.before, self.pool.first) / MIB:.0f} MiB at first"


def measure(ctx: Context) -> Reading:
    gpu, given = ctx.gpus[0], tuple(gpu.pci_bus_id for gpu in ctx.gpus)
    # With several GPUs visible, drivers without on-demand paging (WSL) put all managed memory into the host's.
    os.environ["CUDA_VISIBLE_DEVICES"] = gpu.uuid
    if not ctx.tf.config.list_physical_devices("GPU"):
        return Reading(given, False)
    pools: list[Pool] = []
    raised = ctx.attempt(lambda: pools.append(_use(ctx)))
    if raised or not pools:
        return Reading(given, True, gpu.memory_total_bytes, None, raised)
    return Reading(given, True, gpu.memory_total_bytes, pools[0])


def _use(ctx: Context) -> Pool:
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
        with session:
            before = ctx.memory(gpu)
            session.run(copied, {matrix: MATRIX})
            first = ctx.memory(gpu)
            exceeded = ctx.attempt(lambda: session.run(untouched.op, {shape: [beyond_mib, MIB]}))
            # Not before: the matrix library takes memory of its own beside the pool.
            correct = is_square(session.run(product, {matrix: MATRIX}))
    refuse_disturbance(before, first)
    kernel = Kernel("GPU:0", created_devices(log.lines).get("GPU:0", ""), correct)
    return Pool(ceiling_mib, before, first, beyond_mib, exceeded, kernel)


def judge(reading: Reading, facts: Facts, limits: Limits) -> Iterator[Judgement]:
    pool = reading.pool
    if not reading.seen:
        yield GPU_NOT_SEEN.found(seen=0, given=len(reading.given))
    elif reading.raised and _OLD in reading.raised.message:
        yield TOO_OLD.found(error=reading.raised.brief)
    elif reading.raised:
        yield REFUSED.found(fraction=FRACTION, error=reading.raised.brief)
    if pool is None:
        return
    partial = is_partitioned(facts, reading.given[0])
    total_mib = pool.ceiling_mib / FRACTION if partial else reading.total_bytes / MIB
    figures = {"ceiling_mib": pool.ceiling_mib, "total_mib": total_mib}
    # CUDA counts a little less than NVML: what the driver keeps for itself.
    if not 0.95 * FRACTION * total_mib < pool.ceiling_mib <= FRACTION * total_mib + 1:
        yield OTHER_CEILING.found(**figures, fraction=FRACTION, expected_mib=FRACTION * total_mib)
    rise = taken(pool.before, pool.first)
    if rise > SLACK_BYTES:
        yield TAKEN_AT_ONCE.found(taken_mib=rise / MIB)
    if pool.exceeded:
        yield NO_OVERSUBSCRIPTION.found(**figures, beyond_mib=pool.beyond_mib, error=pool.exceeded.brief)
    yield from judge_kernel(pool.kernel, reading.given[0])


_PCI = "0000:3b:00.0"


def _case(
    name: str,
    *expect: str,
    total_mib: int = 16384,
    ceiling_mib: int = 18022,
    mib: int = 2,
    exceeded: Raised | None = None,
    kernel: Kernel = Kernel("GPU:0", _PCI, True),  # noqa: B008  # immutable
    facts: Facts | None = None,
) -> Case:
    before, first = MemoryUse(450 * MIB, None), MemoryUse((450 + mib) * MIB, None)
    pool = Pool(ceiling_mib, before, first, int(ceiling_mib / FRACTION * BEYOND), exceeded, kernel)
    verified = (_PCI,) if kernel.correct and kernel.pci_bus_id == _PCI else ()
    return Case(name, expect, Reading((_PCI,), True, total_mib * MIB, pool), facts, verified=verified)


CASES = (
    _case("more than the GPU has"),
    _case("a total that the driver diminishes", total_mib=81559, ceiling_mib=89108),
    _case("an instance of a GPU", ceiling_mib=2500, facts=partitioned(_PCI)),
    _case("cut to what the GPU has", OTHER_CEILING.name, ceiling_mib=16384),
    _case("all at once", TAKEN_AT_ONCE.name, mib=18022),
    _case(
        "no more than the GPU has", NO_OVERSUBSCRIPTION.name, exceeded=Raised("ResourceExhaustedError", "OOM on GPU:0")
    ),
    _case("another GPU", OTHER_GPU.name, kernel=Kernel("GPU:0", "0000:af:00.0", True)),
    _case("a wrong product", WRONG_RESULT.name, kernel=Kernel("GPU:0", _PCI, False)),
    Case(
        "an error",
        (REFUSED.name,),
        Reading((_PCI,), True, 16384 * MIB, None, Raised("InvalidArgumentError", "fraction must be at most 1.0")),
    ),
    Case(
        "an old GPU",
        (TOO_OLD.name,),
        Reading(
            (_PCI,),
            True,
            4096 * MIB,
            None,
            Raised("InternalError", f"Unified memory on GPUs with {_OLD} (pre-Pascal class GPUs) does not support"),
        ),
    ),
    Case("TensorFlow without GPU", (GPU_NOT_SEEN.name,), Reading((_PCI,), False)),
)
