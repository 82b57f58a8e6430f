"""With growth and a fraction both hold: growth decides when memory is taken, the fraction how much at most.

What it does
    Opens a `tf.compat.v1.Session` with `allow_growth` and a `per_process_gpu_memory_fraction` that stands for 256 MiB.
    It copies one small tensor to the GPU, makes one of half the ceiling, and asks for twice the ceiling. NVML tells the
    memory in use after each step, TensorFlow's `Created device` line the ceiling. A matrix product is computed and
    checked at the end.
Why it matters
    The two are often taken for alternatives ("growth or fraction"). Together they let a program start small beside
    others and still never take more than its share.
What a failure means
    `other_ceiling`: TensorFlow made the device with another ceiling than the fraction stands for.
    `taken_at_once`: the first tensor took much more than it needs: growth was not kept.
    `not_given`: a tensor well below the ceiling was refused.
    `ceiling_ignored`: more than the fraction was taken or given out: the fraction was not kept.
    `other_error`: asking for too much raised something else than `tf.errors.ResourceExhaustedError`.
    `gpu_not_seen`, `other_gpu`, `wrong_result`: TensorFlow does not use the GPU that it was given, or not correctly.
What to do
    In the first session of the process: `gpu_options = tf.compat.v1.GPUOptions(per_process_gpu_memory_fraction=0.25,
    allow_growth=True)`. In TensorFlow 2 a limit ends growth; to have both, `export TF_FORCE_GPU_ALLOW_GROWTH=true` and
    set `tf.config.set_logical_device_configuration(gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=4096)])`.
"""

from __future__ import annotations

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
    # Were both ignored, TensorFlow would take all that is free; the first makes it stop at 1 GiB. The others would
    # decide in place of the options under test (memory.growth_forced and memory.fraction tell).
    env={"TF_PER_DEVICE_MEMORY_LIMIT_MB": "1024", "TF_FORCE_GPU_ALLOW_GROWTH": None, "TF_GPU_ALLOCATOR": None},
)

OTHER_CEILING = Kind(
    "other_ceiling",
    Severity.FAIL,
    "TensorFlow made the device with {ceiling_mib} MB, the fraction stands for {cap_mib:.0f} MiB",
    "Set the fraction in the first session of the process: another one later is ignored without a word.",
)
TAKEN_AT_ONCE = Kind(
    "taken_at_once",
    Severity.FAIL,
    "with growth and a ceiling of {ceiling_mib} MiB the first tensor took {first_mib:.0f} MiB, expected about 2 MiB",
    "Force growth: export TF_FORCE_GPU_ALLOW_GROWTH=true",
)
NOT_GIVEN = Kind(
    "not_given",
    Severity.FAIL,
    "a tensor of {within_mib:.0f} MiB below a ceiling of {ceiling_mib} MiB was refused: {error}",
    "Look in nvidia-smi for what fills this GPU, and end it.",
)
CEILING_IGNORED = Kind(
    "ceiling_ignored",
    Severity.FAIL,
    "took {last_mib:.0f} MiB under a ceiling of {ceiling_mib} MiB; a tensor of {beyond_mib:.0f} MiB {ended}",
    "Cap it in MiB: tf.config.set_logical_device_configuration(gpu, "
    "[tf.config.LogicalDeviceConfiguration(memory_limit=4096)])",
)
OTHER_ERROR = Kind(
    "other_error",
    Severity.FAIL,
    "asking for {beyond_mib:.0f} MiB above a ceiling of {ceiling_mib} MiB raised {error}",
    "Programs that catch tf.errors.ResourceExhaustedError miss this error: look up its text.",
)

CAP_BYTES = 256 * MIB


class Pool(Record):
    """What the session took, by NVML."""

    ceiling_mib: int
    """What TensorFlow says the device may take at most; 0 where it named no GPU:0."""
    before: MemoryUse
    """After the CUDA context was made, before the first tensor."""
    first: MemoryUse
    """After the first tensor, of 16 bytes."""
    grown: MemoryUse
    """After a tensor of half the ceiling."""
    within: Raised | None
    """What making that tensor raised."""
    last: MemoryUse
    """After twice the ceiling was asked for."""
    exceeded: Raised | None
    """What asking for it raised."""
    kernel: Kernel


class Reading(probe.Reading):
    """What was asked for, and what was taken."""

    given: tuple[str, ...]
    """PCI bus ids of the GPUs that the probe was given."""
    seen: int
    """GPUs that TensorFlow lists."""
    pool: Pool | None = None
    """Of the first GPU; None where TensorFlow lists too few GPUs."""

    def figure(self) -> str:
        if self.pool is None:
            return f"TensorFlow lists {self.seen} of {len(self.given)} GPUs"
        first, grown = taken(self.pool.before, self.pool.first), taken(self.pool.before, self.pool.grown)
        return f"{first / MIB:.0f} MiB, then {grown / MIB:.0f} MiB, ceiling {self.pool.ceiling_mib} MiB"


def measure(ctx: Context) -> Reading:
    tf, v1 = ctx.tf, ctx.tf.compat.v1
    gpu, given = ctx.gpus[0], tuple(gpu.pci_bus_id for gpu in ctx.gpus)
    seen = len(tf.config.list_physical_devices("GPU"))
    if seen < len(given):
        return Reading(given, seen)
    options = v1.GPUOptions(
        per_process_gpu_memory_fraction=CAP_BYTES / gpu.memory_total_bytes, allow_growth=True, visible_device_list="0"
    )
    # An allocation that fails is otherwise tried again for 10 s.
    options.experimental.disallow_retry_on_allocation_failure = True
    with tf.Graph().as_default(), tf.device("/GPU:0"):
        matrix = v1.placeholder(tf.float32, [2, 2])
        copied = tf.identity(matrix)
        product = tf.matmul(matrix, matrix)
        elements = v1.placeholder(tf.int32, [1])
        large = tf.fill(elements, 1.0)[0]
        with ctx.placements() as log:
            session: Any = v1.Session(config=v1.ConfigProto(gpu_options=options))
        ceiling_mib = ceilings_mib(log.lines).get("GPU:0", 0)
        with session:
            before = ctx.memory(gpu)
            session.run(copied, {matrix: MATRIX})
            first = ctx.memory(gpu)
            within = ctx.attempt(lambda: session.run(large, {elements: [ceiling_mib * MIB // 8]}))
            grown = ctx.memory(gpu)
            exceeded = ctx.attempt(lambda: session.run(large, {elements: [ceiling_mib * MIB // 2]}))
            last = ctx.memory(gpu)
            # Not before: the matrix library takes memory of its own beside the pool.
            correct = is_square(session.run(product, {matrix: MATRIX}))
    refuse_disturbance(before, first, grown, last)
    kernel = Kernel("GPU:0", created_devices(log.lines).get("GPU:0", ""), correct)
    return Reading(given, seen, Pool(ceiling_mib, before, first, grown, within, last, exceeded, kernel))


def judge(reading: Reading, facts: Facts, limits: Limits) -> Iterator[Judgement]:
    pool = reading.pool
    if pool is None:
        yield GPU_NOT_SEEN.found(seen=reading.seen, given=len(reading.given))
        return
    ceiling, first = pool.ceiling_mib * MIB, taken(pool.before, pool.first)
    highest = max(taken(pool.before, use) for use in (pool.first, pool.grown, pool.last))
    figures = {"ceiling_mib": pool.ceiling_mib, "beyond_mib": 2 * pool.ceiling_mib}
    # CUDA counts a little less memory than NVML: what the driver keeps for itself.
    if not is_partitioned(facts, reading.given[0]) and not 0.95 * CAP_BYTES <= ceiling <= CAP_BYTES + MIB:
        yield OTHER_CEILING.found(ceiling_mib=pool.ceiling_mib, cap_mib=CAP_BYTES / MIB)
    if first > SLACK_BYTES:
        yield TAKEN_AT_ONCE.found(**figures, first_mib=first / MIB)
    if pool.within:
        yield NOT_GIVEN.found(**figures, within_mib=pool.ceiling_mib / 2, error=pool.within.brief)
    if pool.exceeded is None or highest > ceiling + SLACK_BYTES:
        ended = "was refused" if pool.exceeded else "was given out"
        yield CEILING_IGNORED.found(**figures, last_mib=highest / MIB, ended=ended)
    elif pool.exceeded.type != "ResourceExhaustedError":
        yield OTHER_ERROR.found(**figures, error=pool.exceeded.brief)
    yield from judge_kernel(pool.kernel, reading.given[0])


_PCI = "0000:3b:00.0"
_OOM = Raised("ResourceExhaustedError", "OOM when allocating tensor with shape[134217728] and type float")


def _case(
    name: str,
    *expect: str,
    ceiling_mib: int = 256,
    mib: tuple[int, int, int] = (2, 130, 130),
    within: Raised | None = None,
    exceeded: Raised | None = _OOM,
    kernel: Kernel = Kernel("GPU:0", _PCI, True),  # noqa: B008  # immutable
    facts: Facts | None = None,
) -> Case:
    before, first, grown, last = (MemoryUse((450 + rise) * MIB, None) for rise in (0, *mib))
    pool = Pool(ceiling_mib, before, first, grown, within, last, exceeded, kernel)
    verified = (_PCI,) if kernel.correct and kernel.pci_bus_id == _PCI else ()
    return Case(name, expect, Reading((_PCI,), 1, pool), facts, verified=verified)


CASES = (
    _case("both hold"),
    _case("a total that the driver diminishes", ceiling_mib=254),
    _case("an instance of a GPU", ceiling_mib=36, mib=(2, 34, 34), facts=partitioned(_PCI)),
    _case("another fraction", OTHER_CEILING.name, ceiling_mib=4096, mib=(2, 1026, 1026)),
    _case("growth is lost", TAKEN_AT_ONCE.name, mib=(256, 256, 256)),
    _case("the fraction is lost", CEILING_IGNORED.name, mib=(2, 130, 642), exceeded=None),
    _case("both are lost", TAKEN_AT_ONCE.name, CEILING_IGNORED.name, mib=(1000, 1000, 1000)),
    _case("a full GPU", NOT_GIVEN.name, mib=(2, 2, 2), within=_OOM),
    _case("an unknown error", OTHER_ERROR.name, exceeded=Raised("InternalError", "CUDA error")),
    _case("another GPU", OTHER_GPU.name, kernel=Kernel("GPU:0", "0000:af:00.0", True)),
    _case("a wrong product", WRONG_RESULT.name, kernel=Kernel("GPU:0", _PCI, False)),
    Case("TensorFlow without GPU", (GPU_NOT_SEEN.name,), Reading((_PCI,), 0)),
)
