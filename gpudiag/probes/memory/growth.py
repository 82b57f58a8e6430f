"""With memory growth TensorFlow takes GPU memory as tensors need it, and not nearly all of it at once.

What it does
    Calls `tf.config.experimental.set_memory_growth(gpu, True)`, lets TensorFlow make the device, then puts a tensor of
    16 bytes and one of 100 MiB on it, and deletes the large one. NVML tells the memory in use on the device after each
    step. It tries to switch growth off afterwards, and computes and checks a matrix product on the GPU.
Why it matters
    Without growth the first tensor takes nearly all memory of every visible GPU, and other programs on it fail. Growth
    decides when memory is taken, not how much: what was taken is kept until the process ends.
What a failure means
    `growth_ignored`: far more was taken than the tensors need.
    `out_of_memory`: the GPU has no 100 MiB left.
    `not_on_device`: a tensor of 100 MiB did not show in the memory of the GPU that it was put on.
    `given_back`: memory was given back to the driver when the tensor was deleted: the allocator is another.
    `overridden`: TF_FORCE_GPU_ALLOW_GROWTH in your environment decides, and not `set_memory_growth`.
    `late_change_accepted`: growth could be changed after initialisation; whether that has an effect is not known.
    `gpu_not_seen`, `other_gpu`, `wrong_result`: TensorFlow does not use the GPU that it was given, or not correctly.
What to do
    Call `tf.config.experimental.set_memory_growth(gpu, True)` for every GPU right after the import. It is lost without
    a word where any device, even the CPU, is split into logical devices; `export TF_FORCE_GPU_ALLOW_GROWTH=true` is
    not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpudiag import hostfacts, probe
from gpudiag.hostfacts import EnvironmentFacts, Facts
from gpudiag.model import Limits, Severity
from gpudiag.placement import short_device
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
    scope=Scope.EACH_GPU,
    exclusive=True,
    # Were growth ignored, TensorFlow would take all that is free; this makes it stop at 1 GiB.
    env={"TF_PER_DEVICE_MEMORY_LIMIT_MB": "1024"},
)

GROWTH_IGNORED = Kind(
    "growth_ignored",
    Severity.FAIL,
    "a tensor of 16 bytes took {first_mib:.0f} MiB, one of {large_mib:.0f} MiB made it {grown_mib:.0f} MiB",
    "Force it: export TF_FORCE_GPU_ALLOW_GROWTH=true",
)
OUT_OF_MEMORY = Kind(
    "out_of_memory",
    Severity.FAIL,
    "a tensor of {large_mib:.0f} MiB could not be made: {error}",
    "Look in nvidia-smi for what fills this GPU, and end it.",
)
NOT_ON_DEVICE = Kind(
    "not_on_device",
    Severity.FAIL,
    "a tensor of {large_mib:.0f} MiB on {device} raised the memory of {pci_bus_id} by {grown_mib:.0f} MiB only",
    "Look where it went: run nvidia-smi while the program runs, and choose GPUs by UUID in CUDA_VISIBLE_DEVICES.",
)
GIVEN_BACK = Kind(
    "given_back",
    Severity.NOTE,
    "deleting a tensor of {large_mib:.0f} MiB gave {back_mib:.0f} MiB back; TensorFlow's own pool keeps what it took",
    "This is how TF_GPU_ALLOCATOR=cuda_malloc and cuda_malloc_async work; for TensorFlow's own: unset TF_GPU_ALLOCATOR",
)
OVERRIDDEN = Kind(
    "overridden",
    Severity.NOTE,
    "TF_FORCE_GPU_ALLOW_GROWTH={value} decides here, set_memory_growth does not: "
    "a tensor of 16 bytes took {first_mib:.0f} MiB",
    "To let programs decide: unset TF_FORCE_GPU_ALLOW_GROWTH",
)
LATE_CHANGE_ACCEPTED = Kind(
    "late_change_accepted",
    Severity.WARNING,
    "set_memory_growth(gpu, False) was accepted after TensorFlow had initialised",
    "Do not rely on an error: call it in the first lines after `import tensorflow`.",
)

LARGE_BYTES = 100 * MIB
# TensorFlow's pool grows by regions that double: 2 MiB, then 128 MiB for this tensor (measured). Twice that is a fault.
MOST_BYTES = 256 * MIB


class Pool(Record):
    """What TensorFlow took, by NVML."""

    before: MemoryUse
    """After the CUDA context was made, before the first tensor."""
    first: MemoryUse
    """After a tensor of 16 bytes."""
    grown: MemoryUse
    """After a tensor of :data:`LARGE_BYTES`."""
    large: Raised | None
    """What making that tensor raised."""
    freed: MemoryUse
    """After that tensor was deleted; TensorFlow gives nothing back."""
    late_change: Raised | None
    """What switching growth off afterwards raised."""
    kernel: Kernel


class Reading(probe.Reading):
    """What was taken, and when."""

    pci_bus_id: str
    """Of the GPU that the probe was given."""
    pool: Pool | None
    """None where TensorFlow lists no GPU."""

    def figure(self) -> str:
        if self.pool is None:
            return "TensorFlow lists 0 of 1 GPUs"
        first, grown = taken(self.pool.before, self.pool.first), taken(self.pool.before, self.pool.grown)
        return f"{first / MIB:.0f} MiB, then {grown / MIB:.0f} MiB for a tensor of {LARGE_BYTES / MIB:.0f} MiB"


def measure(ctx: Context) -> Reading:
    tf = ctx.tf
    (gpu,) = ctx.gpus
    without_allocation_retry(ctx)
    devices = tf.config.list_physical_devices("GPU")
    if not devices:
        return Reading(gpu.pci_bus_id, None)
    tf.config.experimental.set_memory_growth(devices[0], True)
    tf.config.set_soft_device_placement(False)
    tf.config.list_logical_devices("GPU")  # makes the CUDA context
    before = ctx.memory(gpu)
    with tf.device("/GPU:0"):
        matrix = tf.identity(tf.constant(MATRIX))
        first = ctx.memory(gpu)
        tensors: list[Any] = []
        large = ctx.attempt(lambda: tensors.append(tf.zeros([LARGE_BYTES // 4])))
        grown = ctx.memory(gpu)
        tensors.clear()
        freed = ctx.memory(gpu)
        # Not before: the matrix library takes memory of its own beside the pool.
        product = tf.matmul(matrix, matrix)
    refuse_disturbance(before, first, grown, freed)
    late_change = ctx.attempt(lambda: tf.config.experimental.set_memory_growth(devices[0], False))
    device = short_device(product.device)
    kernel = Kernel(device, ctx.pci_bus_ids().get(device, ""), is_square(product))
    return Reading(gpu.pci_bus_id, Pool(before, first, grown, large, freed, late_change, kernel))


def judge(reading: Reading, facts: Facts, limits: Limits) -> Iterator[Judgement]:
    pool = reading.pool
    if pool is None:
        yield GPU_NOT_SEEN.found(seen=0, given=1)
        return
    first, grown = taken(pool.before, pool.first), taken(pool.before, pool.grown)
    figures = {"large_mib": LARGE_BYTES / MIB, "first_mib": first / MIB, "grown_mib": grown / MIB}
    forced = facts.variables.get("TF_FORCE_GPU_ALLOW_GROWTH")
    if forced in {"true", "false"}:
        yield OVERRIDDEN.found(value=forced, first_mib=first / MIB)
    if forced != "false" and (first > SLACK_BYTES or grown > MOST_BYTES):
        yield GROWTH_IGNORED.found(**figures)
    if pool.large:
        yield OUT_OF_MEMORY.found(**figures, error=pool.large.brief)
    elif grown < LARGE_BYTES - SLACK_BYTES:
        yield NOT_ON_DEVICE.found(**figures, device=pool.kernel.device, pci_bus_id=reading.pci_bus_id)
    back = grown - taken(pool.before, pool.freed)
    if back > SLACK_BYTES:
        yield GIVEN_BACK.found(**figures, back_mib=back / MIB)
    if pool.late_change is None:
        yield LATE_CHANGE_ACCEPTED.found()
    yield from judge_kernel(pool.kernel, reading.pci_bus_id)


_PCI = "0000:3b:00.0"
_REFUSED = Raised("RuntimeError", "Physical devices cannot be modified after being initialized")


def _case(
    name: str,
    *expect: str,
    first_mib: int = 2,
    grown_mib: int = 130,
    freed_mib: int | None = None,
    large: Raised | None = None,
    late_change: Raised | None = _REFUSED,
    kernel: Kernel = Kernel("GPU:0", _PCI, True),  # noqa: B008  # immutable
    forced: str | None = None,
) -> Case:
    freed_mib = grown_mib if freed_mib is None else freed_mib
    before, first, grown, freed = (MemoryUse((450 + mib) * MIB, None) for mib in (0, first_mib, grown_mib, freed_mib))
    reading = Reading(_PCI, Pool(before, first, grown, large, freed, late_change, kernel))
    variables = {} if forced is None else {"TF_FORCE_GPU_ALLOW_GROWTH": forced}
    verified = (_PCI,) if kernel.correct and kernel.pci_bus_id == _PCI else ()
    return Case(name, expect, reading, hostfacts.example(environment=EnvironmentFacts(variables)), verified=verified)


CASES = (
    _case("grows"),
    _case("takes all it is let", GROWTH_IGNORED.name, first_mib=1000, grown_mib=1000),
    _case("takes all for the second tensor", GROWTH_IGNORED.name, grown_mib=1000),
    _case("switched off by the environment", OVERRIDDEN.name, first_mib=1000, grown_mib=1000, forced="false"),
    _case("switched on by the environment", OVERRIDDEN.name, forced="true"),
    _case("a value without effect", forced="1"),
    _case("a tensor that is not there", NOT_ON_DEVICE.name, grown_mib=2),
    _case("a full GPU", OUT_OF_MEMORY.name, grown_mib=2, large=Raised("ResourceExhaustedError", "OOM")),
    _case("an allocator that gives memory back", GIVEN_BACK.name, first_mib=0, grown_mib=100, freed_mib=0),
    _case("a late change", LATE_CHANGE_ACCEPTED.name, late_change=None),
    _case("another GPU", OTHER_GPU.name, kernel=Kernel("GPU:0", "0000:af:00.0", True)),
    _case("a wrong product", WRONG_RESULT.name, kernel=Kernel("GPU:0", _PCI, False)),
    Case("TensorFlow without GPU", (GPU_NOT_SEEN.name,), Reading(_PCI, None)),
)
