"""Memory growth that differs between GPUs is refused before anything is taken, and can be put right afterwards.

What it does
    Calls `tf.config.experimental.set_memory_growth(gpu, True)` for the first of the visible GPUs only and lets
    TensorFlow make its devices, which must raise. NVML tells whether memory was taken. It then sets growth for the
    other GPUs too, puts a small tensor on every GPU, and computes and checks a matrix product on each.
Why it matters
    Growth is one setting for the whole process. A program that sets it for the first GPU works on a machine with one
    and fails, at its first tensor and not at the call, on a machine with two.
What a failure means
    `no_error`: TensorFlow started with settings that differ; which of them holds is not known.
    `other_error`: the refusal has another type or text; programs that look for it miss it.
    `taken`: memory was taken although TensorFlow refused to start.
    `not_cured`: after growth was set for all GPUs TensorFlow still does not start.
    `growth_ignored`: after that, a small tensor took far more than it needs.
    `gpu_not_seen`, `other_gpu`, `wrong_result`: TensorFlow does not use the GPUs that it was given, or not correctly.
What to do
    Right after the import: `for gpu in tf.config.list_physical_devices("GPU"):
    tf.config.experimental.set_memory_growth(gpu, True)`. GPUs hidden with `tf.config.set_visible_devices` do not count.
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

PROBE = probe.Probe(
    needs=Needs(gpus=2, free_bytes=128 * MIB),
    scope=Scope.ALL_GPUS,
    exclusive=True,
    # Were growth ignored, TensorFlow would take all that is free of every GPU; the first makes it stop at 128 MiB of
    # each. The others would decide in place of set_memory_growth (memory.growth and memory.fraction tell).
    env={"TF_PER_DEVICE_MEMORY_LIMIT_MB": "128", "TF_FORCE_GPU_ALLOW_GROWTH": None, "TF_GPU_ALLOCATOR": None},
)

NO_ERROR = Kind(
    "no_error",
    Severity.WARNING,
    "TensorFlow started with growth on for 1 of {gpus} GPUs and off for the others",
    "Set it for every GPU: tf.config.experimental.set_memory_growth(gpu, True)",
)
OTHER_ERROR = Kind(
    "other_error",
    Severity.WARNING,
    '{error} (expected ValueError "Memory growth cannot differ between GPU devices")',
    "Do not match on the type or text of this error; set growth for every GPU.",
)
TAKEN = Kind(
    "taken",
    Severity.WARNING,
    "TensorFlow refused to start and took {taken_mib:.0f} MiB of {pci_bus_id}",
    "End the program after this error: what was taken stays taken until then.",
)
NOT_CURED = Kind(
    "not_cured",
    Severity.FAIL,
    "with growth on for all {gpus} GPUs: {error}",
    "Set growth for every GPU in the first lines after `import tensorflow`, before anything that can fail.",
)
GROWTH_IGNORED = Kind(
    "growth_ignored",
    Severity.FAIL,
    "with growth a tensor of 16 bytes on {device} took {taken_mib:.0f} MiB, expected about 2 MiB",
    "Force it: export TF_FORCE_GPU_ALLOW_GROWTH=true",
)

TEXT = "Memory growth cannot differ"


class Use(Record):
    """Memory and work of one GPU, by NVML."""

    start: MemoryUse
    """Before TensorFlow was let make its devices."""
    refused: MemoryUse
    """After it raised."""
    made: MemoryUse | None = None
    """After it made its devices, with growth on for all; None where it still raised."""
    first: MemoryUse | None = None
    """After a tensor of 16 bytes on every GPU."""
    kernel: Kernel | None = None


class Reading(probe.Reading):
    """What setting growth for the first GPU only led to."""

    given: tuple[str, ...]
    """PCI bus ids of the GPUs that the probe was given."""
    seen: int
    """GPUs that TensorFlow lists."""
    raised: Raised | None = None
    """What making the devices raised with growth on for the first GPU only."""
    raised_again: Raised | None = None
    """What it raised with growth on for all."""
    uses: tuple[Use, ...] = ()
    """In the order of ``given``; empty where TensorFlow lists too few GPUs."""

    def figure(self) -> str:
        if not self.uses:
            return f"TensorFlow lists {self.seen} of {len(self.given)} GPUs"
        again = "still refused" if self.raised_again else "starts"
        return f"1 of {len(self.given)} GPUs: {'refused' if self.raised else 'starts'}; all: {again}"


def measure(ctx: Context) -> Reading:
    tf = ctx.tf
    given = tuple(gpu.pci_bus_id for gpu in ctx.gpus)
    devices = tf.config.list_physical_devices("GPU")
    if len(devices) < len(given):
        return Reading(given, len(devices))
    tf.config.experimental.set_memory_growth(devices[0], True)
    start = [ctx.memory(gpu) for gpu in ctx.gpus]
    with ctx.placements() as log:
        raised = ctx.attempt(lambda: tf.config.list_logical_devices("GPU"))
        refused = [ctx.memory(gpu) for gpu in ctx.gpus]
        again = raised and ctx.attempt(lambda: _cure(ctx, devices[1:]))
    if again:
        return Reading(given, len(devices), raised, again, tuple(map(Use, start, refused)))
    created = created_devices(log.lines)
    tf.config.set_soft_device_placement(False)
    made = [ctx.memory(gpu) for gpu in ctx.gpus]
    matrices = []
    for number in range(len(given)):
        with tf.device(f"/GPU:{number}"):
            matrices.append(tf.identity(tf.constant(MATRIX)))
    first = [ctx.memory(gpu) for gpu in ctx.gpus]
    uses = []
    # Last: the matrix library takes memory of its own beside the pool.
    for number, matrix in enumerate(matrices):
        refuse_disturbance(start[number], refused[number], made[number], first[number])
        with tf.device(f"/GPU:{number}"):
            product = tf.matmul(matrix, matrix)
        device = short_device(product.device)
        kernel = Kernel(device, created.get(device, ""), is_square(product))
        uses.append(Use(start[number], refused[number], made[number], first[number], kernel))
    return Reading(given, len(devices), raised, None, tuple(uses))


def _cure(ctx: Context, others: list[object]) -> None:
    for device in others:
        ctx.tf.config.experimental.set_memory_growth(device, True)
    ctx.tf.config.list_logical_devices("GPU")


def judge(reading: Reading, facts: Facts, limits: Limits) -> Iterator[Judgement]:
    raised, count = reading.raised, len(reading.given)
    if not reading.uses:
        yield GPU_NOT_SEEN.found(seen=reading.seen, given=count)
        return
    if raised is None:
        yield NO_ERROR.found(gpus=count)
    elif raised.type != "ValueError" or TEXT not in raised.message:
        yield OTHER_ERROR.found(error=raised.brief)
    if reading.raised_again:
        yield NOT_CURED.found(gpus=count, error=reading.raised_again.brief)
    for use, pci_bus_id in zip(reading.uses, reading.given, strict=True):
        early = taken(use.start, use.refused)
        if raised and early > SLACK_BYTES:
            yield TAKEN.found(taken_mib=early / MIB, pci_bus_id=pci_bus_id)
        if use.kernel is None or use.made is None or use.first is None:
            continue
        rise = taken(use.made, use.first)
        if raised and rise > SLACK_BYTES:
            yield GROWTH_IGNORED.found(device=use.kernel.device, taken_mib=rise / MIB)
        yield from judge_kernel(use.kernel, pci_bus_id)


_GIVEN = ("0000:3b:00.0", "0000:af:00.0")
_REFUSED = Raised("ValueError", "Memory growth cannot differ between GPU devices")


def _case(
    name: str,
    *expect: str,
    raised: Raised | None = _REFUSED,
    again: Raised | None = None,
    early_mib: int = 0,
    first_mib: int = 2,
    on: tuple[str, str] = _GIVEN,
    correct: bool = True,
    verified: tuple[str, ...] = _GIVEN,
) -> Case:
    start, refused, made, first = (
        MemoryUse(mib * MIB, None) for mib in (10, 10 + early_mib, 450 + early_mib, 450 + early_mib + first_mib)
    )
    uses = (
        tuple(Use(start, refused, made, first, Kernel(f"GPU:{n}", at, correct)) for n, at in enumerate(on))
        if again is None
        else (Use(start, refused),) * 2
    )
    return Case(name, expect, Reading(_GIVEN, 2, raised, again, uses), verified=verified)


CASES = (
    _case("refused, then right"),
    _case("accepted", NO_ERROR.name, raised=None, first_mib=120),
    _case("another error", OTHER_ERROR.name, raised=Raised("RuntimeError", "Too late")),
    _case("refused late", TAKEN.name, TAKEN.name, early_mib=420),
    _case("refused for good", NOT_CURED.name, again=Raised("RuntimeError", "Initialised"), verified=()),
    _case("growth ignored", GROWTH_IGNORED.name, GROWTH_IGNORED.name, first_mib=120),
    _case("another order", OTHER_GPU.name, OTHER_GPU.name, on=(_GIVEN[1], _GIVEN[0]), verified=()),
    _case("wrong products", WRONG_RESULT.name, WRONG_RESULT.name, correct=False, verified=()),
    Case("TensorFlow lists one of two", (GPU_NOT_SEEN.name,), Reading(_GIVEN, 1)),
)
