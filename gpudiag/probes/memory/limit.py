"""`memory_limit` caps what TensorFlow takes of a GPU; a tensor above it raises an error that a program survives.

What it does
    Makes one logical device with a limit of 128 MiB on every GPU. On each it makes a small tensor, which takes the
    whole limit, then asks for 256 MiB, and afterwards for 64 MiB and a matrix product. NVML tells the memory in use on
    the device after each step.
Why it matters
    The limit is how several programs share one GPU, and how a program is tested for a smaller one. A program that
    meets it must be able to go on: with a smaller batch, or by saving what it has.
What a failure means
    `limit_ignored`: TensorFlow took more than the limit, or gave out memory beyond it.
    `no_limit`: the same, because `TF_GPU_ALLOCATOR` in your environment chooses an allocator that knows no limit.
    `not_at_once`: the first tensor took less than the limit: the GPU was nearly full.
    `overridden`: `TF_FORCE_GPU_ALLOW_GROWTH` in your environment makes the pool grow up to the limit instead.
    `other_error`: asking for too much raised something else than `tf.errors.ResourceExhaustedError`.
    `not_survived`: after the error a tensor well within the limit could not be made.
    `gpu_not_seen`, `other_gpu`, `wrong_result`: TensorFlow does not use the GPUs that it was given, or not correctly.
What to do
    `tf.config.set_logical_device_configuration(gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=4096)])`, in
    MiB, right after the import. Leave room beside it: CUDA context and libraries (some 100 MiB) are not counted.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudiag import hostfacts, probe
from gpudiag.hostfacts import EnvironmentFacts, Facts
from gpudiag.model import Figure, Limits, Severity
from gpudiag.placement import created_devices, short_device
from gpudiag.probe import Case, Context, Judgement, Kind, MemoryUse, Needs, Raised, Scope
from gpudiag.probes.common import (
    GPU_NOT_SEEN,
    MATRIX,
    MIB,
    OTHER_GPU,
    SLACK_BYTES,
    WRONG_RESULT,
    Kernel,
    is_square,
    judge_kernel,
    refuse_disturbance,
    taken,
    without_allocation_retry,
)
from gpudiag.record import Record

PROBE = probe.Probe(
    needs=Needs(gpus=1, free_bytes=256 * MIB),
    scope=Scope.ALL_GPUS,
    exclusive=True,
    # Were the limit ignored, TensorFlow would take all that is free; this makes it stop at 512 MiB.
    env={"TF_PER_DEVICE_MEMORY_LIMIT_MB": "512"},
)

LIMIT_IGNORED = Kind(
    "limit_ignored",
    Severity.FAIL,
    "{device} took {taken_mib:.0f} MiB, its limit is {limit_mib:.0f} MiB; a tensor of {beyond_mib:.0f} MiB {ended}",
    "Do not share this GPU between programs by limits; give each one its own: export CUDA_VISIBLE_DEVICES=GPU-...",
)
NO_LIMIT = Kind(
    "no_limit",
    Severity.WARNING,
    "TF_GPU_ALLOCATOR={allocator} knows no limit: {device} gave out {beyond_mib:.0f} MiB, "
    "its limit is {limit_mib:.0f} MiB",
    "To have memory limits honoured: unset TF_GPU_ALLOCATOR",
)
NOT_AT_ONCE = Kind(
    "not_at_once",
    Severity.WARNING,
    "the first tensor on {device} took {taken_mib:.0f} MiB of its limit of {limit_mib:.0f} MiB",
    "Look in nvidia-smi for what else fills this GPU, and end it.",
)
OVERRIDDEN = Kind(
    "overridden",
    Severity.NOTE,
    "TF_FORCE_GPU_ALLOW_GROWTH=true decides when memory is taken: "
    "the first tensor on {device} took {taken_mib:.0f} MiB of its limit of {limit_mib:.0f} MiB",
    "To have the whole limit taken at once: unset TF_FORCE_GPU_ALLOW_GROWTH",
)
OTHER_ERROR = Kind(
    "other_error",
    Severity.FAIL,
    "asking {device} for {beyond_mib:.0f} MiB, its limit is {limit_mib:.0f} MiB, raised {error}",
    "Programs that catch tf.errors.ResourceExhaustedError miss this error: look up its text.",
)
NOT_SURVIVED = Kind(
    "not_survived",
    Severity.FAIL,
    "after an allocation above the limit of {limit_mib:.0f} MiB, {within_mib:.0f} MiB on {device} raised {error}",
    "Do not go on after tf.errors.ResourceExhaustedError here: end the process and start a new one.",
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


class Reading(probe.Reading):
    """What was taken of each GPU."""

    given: tuple[str, ...]
    """PCI bus ids of the GPUs that the probe was given, in the order of ``CUDA_VISIBLE_DEVICES``."""
    seen: int
    """GPUs that TensorFlow lists."""
    devices: tuple[Limited, ...] = ()
    """In the order of ``given``; empty where TensorFlow lists too few GPUs."""

    def figure(self) -> str:
        if not self.devices:
            return f"TensorFlow lists {self.seen} of {len(self.given)} GPUs"
        most = max(taken(one.before, one.first) for one in self.devices)
        refused = "refused" if all(one.exceeded for one in self.devices) else "given out"
        return f"{most / MIB:.0f} MiB taken, {BEYOND_BYTES / MIB:.0f} MiB {refused}, limit {LIMIT_BYTES / MIB:.0f} MiB"


def measure(ctx: Context) -> Reading:
    tf = ctx.tf
    given = tuple(gpu.pci_bus_id for gpu in ctx.gpus)
    without_allocation_retry(ctx)
    physical = tf.config.list_physical_devices("GPU")
    if len(physical) < len(given):
        return Reading(given, len(physical))
    for device in physical:
        limit = tf.config.LogicalDeviceConfiguration(memory_limit=LIMIT_BYTES // MIB)
        tf.config.set_logical_device_configuration(device, [limit])
    tf.config.set_soft_device_placement(False)
    with ctx.placements() as log:
        tf.config.list_logical_devices("GPU")
    created = created_devices(log.lines)
    pools, matrices = [], []
    for number, gpu in enumerate(ctx.gpus):
        with tf.device(f"GPU:{number}"):
            before = ctx.memory(gpu)
            matrices.append(tf.identity(tf.constant(MATRIX)))
            first = ctx.memory(gpu)
            exceeded = ctx.attempt(lambda: tf.zeros([BEYOND_BYTES // 4]))
            last = ctx.memory(gpu)
            within = ctx.attempt(lambda: tf.zeros([WITHIN_BYTES // 4]))
        refuse_disturbance(before, first, last)
        pools.append((before, first, last, exceeded, within))
    devices = []
    # Last: the matrix library takes memory of its own beside the limit.
    for number, (pool, matrix) in enumerate(zip(pools, matrices, strict=True)):
        with tf.device(f"GPU:{number}"):
            product = tf.matmul(matrix, matrix)
        ran_on = short_device(product.device)
        devices.append(Limited(*pool, Kernel(ran_on, created.get(ran_on, ""), is_square(product))))
    return Reading(given, len(physical), tuple(devices))


def judge(reading: Reading, facts: Facts, limits: Limits) -> Iterator[Judgement]:
    if reading.seen < len(reading.given):
        yield GPU_NOT_SEEN.found(seen=reading.seen, given=len(reading.given))
        return
    allocator = facts.variables.get("TF_GPU_ALLOCATOR", "")
    forced = facts.variables.get("TF_FORCE_GPU_ALLOW_GROWTH") == "true"
    for one, pci_bus_id in zip(reading.devices, reading.given, strict=True):
        first, last = taken(one.before, one.first), taken(one.before, one.last)
        figures: dict[str, Figure] = {"device": one.kernel.device, "limit_mib": LIMIT_BYTES / MIB}
        figures["beyond_mib"] = BEYOND_BYTES / MIB
        if forced:
            yield OVERRIDDEN.found(**figures, taken_mib=first / MIB)
        elif allocator not in _WITHOUT_POOL and first < LIMIT_BYTES - SLACK_BYTES:
            yield NOT_AT_ONCE.found(**figures, taken_mib=first / MIB)
        if one.exceeded is None or max(first, last) > LIMIT_BYTES + SLACK_BYTES:
            if allocator in _WITHOUT_POOL:
                yield NO_LIMIT.found(**figures, allocator=allocator)
            else:
                ended = "was refused" if one.exceeded else "was given out"
                yield LIMIT_IGNORED.found(**figures, taken_mib=max(first, last) / MIB, ended=ended)
        elif one.exceeded.type != "ResourceExhaustedError":
            yield OTHER_ERROR.found(**figures, error=one.exceeded.brief)
        if one.within:
            yield NOT_SURVIVED.found(**figures, within_mib=WITHIN_BYTES / MIB, error=one.within.brief)
        yield from judge_kernel(one.kernel, pci_bus_id)


# They hand each tensor's memory through to CUDA; measured on 2.21.0: neither cap nor limit holds.
_WITHOUT_POOL = {"cuda_malloc", "cuda_malloc_async"}

_PCI = "0000:3b:00.0"
_OOM = Raised("ResourceExhaustedError", "OOM when allocating tensor with shape[67108864] and type float")


def _case(
    name: str,
    *expect: str,
    first_mib: int = 128,
    last_mib: int = 128,
    exceeded: Raised | None = _OOM,
    within: Raised | None = None,
    kernel: Kernel = Kernel("GPU:0", _PCI, True),  # noqa: B008  # immutable
    variables: dict[str, str] | None = None,
) -> Case:
    before, first, last = (MemoryUse((450 + mib) * MIB, None) for mib in (0, first_mib, last_mib))
    reading = Reading((_PCI,), 1, (Limited(before, first, last, exceeded, within, kernel),))
    facts = hostfacts.example(environment=EnvironmentFacts(variables or {}))
    verified = (_PCI,) if kernel.correct and kernel.pci_bus_id == _PCI else ()
    return Case(name, expect, reading, facts, verified=verified)


CASES = (
    _case("the limit holds"),
    _case("took all it was let", LIMIT_IGNORED.name, first_mib=500, last_mib=500),
    _case("gave out more than the limit", LIMIT_IGNORED.name, last_mib=384, exceeded=None),
    _case("a GPU nearly full", NOT_AT_ONCE.name, first_mib=29, last_mib=29),
    _case(
        "growth forced by the environment",
        OVERRIDDEN.name,
        first_mib=2,
        last_mib=2,
        variables={"TF_FORCE_GPU_ALLOW_GROWTH": "true"},
    ),
    _case(
        "an allocator without limit",
        NO_LIMIT.name,
        first_mib=0,
        last_mib=256,
        exceeded=None,
        variables={"TF_GPU_ALLOCATOR": "cuda_malloc_async"},
    ),
    _case("an unknown error", OTHER_ERROR.name, exceeded=Raised("InternalError", "CUDA error")),
    _case("dead afterwards", NOT_SURVIVED.name, within=_OOM),
    _case("another GPU", OTHER_GPU.name, kernel=Kernel("GPU:0", "0000:af:00.0", True)),
    _case("a wrong product", WRONG_RESULT.name, kernel=Kernel("GPU:0", _PCI, False)),
    Case("TensorFlow without GPU", (GPU_NOT_SEEN.name,), Reading((_PCI,), 0)),
)
