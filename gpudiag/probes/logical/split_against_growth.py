"""Growth and a split exclude each other: on a split GPU growth is refused, and a split after growth undoes it.

What it does
    Switches memory growth on for the first GPU and splits it into two logical devices of 128 MiB, in this order, and
    records what either call raised. Then it asks for growth once more, on the split GPU. A small tensor on `GPU:0`
    shows, by NVML, whether the memory grows or the limit is taken at once; a matrix product is computed and checked.
Why it matters
    Only one order is an error: `set_memory_growth` after the split raises ValueError. Growth first and then the split
    is accepted without a word, `get_memory_growth` goes on saying True, and growth is off for every GPU.
What a failure means
    `no_error`: growth was accepted on a split GPU; whether it has an effect is not known.
    `other_error`: it was refused with another type or text; programs that catch ValueError miss it.
    `split_refused`: the split after growth raised an error, as it does in no release known to us.
    `growth_kept`: the split was accepted and the memory grows; what this probe says does not hold here.
    `gpu_not_seen`, `other_gpu`, `wrong_result`: TensorFlow does not use the GPUs that it was given, or not correctly.
What to do
    Choose one. To have both: `export TF_FORCE_GPU_ALLOW_GROWTH=true`, which the allocator reads itself, and
    `tf.config.set_logical_device_configuration(gpu, [...])` for the limits.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudiag import probe
from gpudiag.hostfacts import Facts
from gpudiag.model import Limits, Severity
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
)
from gpudiag.record import Record

LIMIT_BYTES = 128 * MIB

PROBE = probe.Probe(
    needs=Needs(gpus=1, free_bytes=2 * LIMIT_BYTES),
    scope=Scope.ALL_GPUS,
    exclusive=True,
    # Forced growth would reach the logical devices too, and cuda_malloc_async grows always: what set_memory_growth does
    # could not be seen.
    env={"TF_FORCE_GPU_ALLOW_GROWTH": None, "TF_GPU_ALLOCATOR": None},
)

NO_ERROR = Kind(
    "no_error",
    Severity.FAIL,
    "set_memory_growth(gpu, True) was accepted on a split GPU (expected ValueError)",
    "Do not rely on an error: use either set_memory_growth or set_logical_device_configuration for a GPU.",
)
OTHER_ERROR = Kind(
    "other_error",
    Severity.WARNING,
    'set_memory_growth(gpu, True) on a split GPU: {error} (expected ValueError "Cannot set memory growth on device '
    'when virtual devices configured")',
    "Do not match on the type or text of this error; tell gpudiag's authors of this release of TensorFlow.",
)
SPLIT_REFUSED = Kind(
    "split_refused",
    Severity.WARNING,
    "set_logical_device_configuration after set_memory_growth(gpu, True) raised {error}",
    "Leave set_memory_growth out where a GPU is split, and export TF_FORCE_GPU_ALLOW_GROWTH=true instead.",
)
GROWTH_KEPT = Kind(
    "growth_kept",
    Severity.NOTE,
    "growth outlived the split: the first tensor on GPU:0 took {taken_mib:.0f} MiB of its limit of {limit_mib:.0f} MiB",
    "For the same on every release: export TF_FORCE_GPU_ALLOW_GROWTH=true",
)


class Split(Record):
    """What came of growth and a split on one GPU."""

    split: Raised | None
    """What splitting the GPU raised after growth was switched on for it."""
    growth: Raised | None
    """What switching growth on raised once the GPU was split."""
    before: MemoryUse
    """After the CUDA context was made, before the first tensor."""
    first: MemoryUse
    """After a tensor of 16 bytes on ``GPU:0``."""
    kernel: Kernel


class Reading(probe.Reading):
    """What was refused, and what was taken."""

    given: tuple[str, ...]
    """PCI bus ids of the GPUs that the probe was given, the first of which is split."""
    seen: int
    """GPUs that TensorFlow lists."""
    outcome: Split | None = None
    """None where TensorFlow lists too few GPUs."""

    def figure(self) -> str:
        if self.outcome is None:
            return f"TensorFlow lists {self.seen} of {len(self.given)} GPUs"
        refused = "refused" if self.outcome.growth else "accepted"
        undone = "kept" if _grew(self.outcome) else "undone"
        return f"growth {refused} after the split, {undone} by it"


def measure(ctx: Context) -> Reading:
    tf = ctx.tf
    given = tuple(gpu.pci_bus_id for gpu in ctx.gpus)
    physical = tf.config.list_physical_devices("GPU")
    if len(physical) < len(given):
        return Reading(given, len(physical))
    device, gpu = physical[0], ctx.gpus[0]
    limit = tf.config.LogicalDeviceConfiguration(memory_limit=LIMIT_BYTES // MIB)
    tf.config.set_visible_devices([device], "GPU")  # of another one the first tensor could take nearly all
    tf.config.experimental.set_memory_growth(device, True)
    split = ctx.attempt(lambda: tf.config.set_logical_device_configuration(device, [limit] * 2))
    if split:
        tf.config.experimental.set_memory_growth(device, False)
        tf.config.set_logical_device_configuration(device, [limit] * 2)
    growth = ctx.attempt(lambda: tf.config.experimental.set_memory_growth(device, True))
    tf.config.set_soft_device_placement(False)
    with ctx.placements() as log:
        tf.config.list_logical_devices("GPU")
    before = ctx.memory(gpu)
    with tf.device("/GPU:0"):
        matrix = tf.identity(tf.constant(MATRIX))
        first = ctx.memory(gpu)
        # Not before: the matrix library takes memory of its own beside the limit.
        product = tf.matmul(matrix, matrix)
    refuse_disturbance(before, first)
    ran_on = short_device(product.device)
    kernel = Kernel(ran_on, created_devices(log.lines).get(ran_on, ""), is_square(product))
    return Reading(given, len(physical), Split(split, growth, before, first, kernel))


def _grew(outcome: Split) -> bool:
    return taken(outcome.before, outcome.first) < LIMIT_BYTES - SLACK_BYTES


def judge(reading: Reading, facts: Facts, limits: Limits) -> Iterator[Judgement]:
    outcome = reading.outcome
    if outcome is None:
        yield GPU_NOT_SEEN.found(seen=reading.seen, given=len(reading.given))
        return
    if outcome.growth is None:
        yield NO_ERROR.found()
    elif outcome.growth.type != "ValueError" or "Cannot set memory growth on device" not in outcome.growth.message:
        yield OTHER_ERROR.found(error=outcome.growth.brief)
    if outcome.split:
        yield SPLIT_REFUSED.found(error=outcome.split.brief)
    elif _grew(outcome):
        rose = taken(outcome.before, outcome.first)
        yield GROWTH_KEPT.found(taken_mib=rose / MIB, limit_mib=LIMIT_BYTES / MIB)
    yield from judge_kernel(outcome.kernel, reading.given[0])


_PCI = "0000:3b:00.0"
_REFUSED = Raised("ValueError", "Cannot set memory growth on device when virtual devices configured")


def _case(
    name: str,
    *expect: str,
    split: Raised | None = None,
    growth: Raised | None = _REFUSED,
    first_mib: int = 128,
    kernel: Kernel = Kernel("GPU:0", _PCI, True),  # noqa: B008  # immutable
) -> Case:
    before, first = (MemoryUse((450 + mib) * MIB, None) for mib in (0, first_mib))
    reading = Reading((_PCI,), 1, Split(split, growth, before, first, kernel))
    verified = (_PCI,) if kernel.correct and kernel.pci_bus_id == _PCI else ()
    return Case(name, expect, reading, verified=verified)


CASES = (
    _case("growth refused, and undone by the split"),
    _case("growth accepted on a split GPU", NO_ERROR.name, growth=None),
    _case("another type", OTHER_ERROR.name, growth=Raised("RuntimeError", _REFUSED.message)),
    _case("another text", OTHER_ERROR.name, growth=Raised("ValueError", "Too late")),
    _case("a split refused", SPLIT_REFUSED.name, split=Raised("ValueError", "memory growth is on")),
    _case("growth kept", GROWTH_KEPT.name, first_mib=2),
    _case("another GPU", OTHER_GPU.name, kernel=Kernel("GPU:0", "0000:af:00.0", True)),
    _case("a wrong product", WRONG_RESULT.name, kernel=Kernel("GPU:0", _PCI, False)),
    Case("TensorFlow without GPU", (GPU_NOT_SEEN.name,), Reading((_PCI,), 0)),
)
