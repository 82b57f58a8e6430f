"""The parts of a split GPU do not share memory: one that is full takes nothing from the other.

What it does
    Splits the first GPU into two logical devices of 64 MiB each. It fills `GPU:0` with tensors of 8 MiB until there
    is an error, then `GPU:1` in the same way, and compares how much either gave out; the tensors on `GPU:0` must still
    hold what was written to them. NVML tells what both took together. At the end a matrix product is checked on both.
Why it matters
    The parts are one piece of hardware, and only TensorFlow's limits keep them apart. Several models in one program
    rely on it: one that grows beyond its part must not push out, or overwrite, another.
What a failure means
    `wrong_count`: TensorFlow made another number of logical devices than it was asked for.
    `limit_ignored`: a part gave out, or both took, more than the limits.
    `not_whole`: the parts took less than their limits: the GPU was nearly full.
    `not_apart`: both took their limits, and yet the second, with the first full, gave out less than the first had.
    `overwritten`: tensors of the first part changed while the second was filled.
    `other_error`: filling a part ended in something else than `tf.errors.ResourceExhaustedError`.
    `gpu_not_seen`, `other_gpu`, `wrong_result`: TensorFlow does not use the GPU that it was given, or not correctly.
What to do
    `tf.config.set_logical_device_configuration(gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=4096), ...])`
    right after the import, the limits together some 100 MiB below what `nvidia-smi` shows as free.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from gpudiag import probe
from gpudiag.hostfacts import Facts
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

LIMIT_BYTES = 64 * MIB
TENSOR_BYTES = 8 * MIB
PARTS = 2

PROBE = probe.Probe(
    needs=Needs(gpus=1, free_bytes=PARTS * LIMIT_BYTES),
    scope=Scope.ALL_GPUS,
    exclusive=True,
    # Other allocators know no limit (memory.limit tells), and growth would show less by NVML.
    env={"TF_FORCE_GPU_ALLOW_GROWTH": None, "TF_GPU_ALLOCATOR": None},
)

WRONG_COUNT = Kind(
    "wrong_count",
    Severity.FAIL,
    "TensorFlow made {count} logical GPUs, {wanted} were asked for",
    "Configure before TensorFlow initialises: tf.config.set_logical_device_configuration(gpu, [...]) "
    "as the first call after the import",
)
LIMIT_IGNORED = Kind(
    "limit_ignored",
    Severity.FAIL,
    "{what} {mib:.0f} MiB, the limit is {limit_mib:.0f} MiB",
    "Do not share this GPU between models by limits; give each one its own: export CUDA_VISIBLE_DEVICES=GPU-...",
)
NOT_WHOLE = Kind(
    "not_whole",
    Severity.WARNING,
    "both parts together took {taken_mib:.0f} MiB of their {limit_mib:.0f} MiB; GPU:0 gave out {first_mib:.0f}, "
    "GPU:1 {second_mib:.0f} MiB",
    "Look in nvidia-smi for what else fills this GPU, and end it.",
)
NOT_APART = Kind(
    "not_apart",
    Severity.FAIL,
    "with GPU:0 full, GPU:1 gave out {second_mib:.0f} MiB of {limit_mib:.0f} MiB, GPU:0 had given {first_mib:.0f}",
    "Limits do not keep models apart here: give each model a process of its own.",
)
OVERWRITTEN = Kind(
    "overwritten",
    Severity.FAIL,
    "tensors on GPU:0 changed while GPU:1 was filled: {intact} of {count} are intact",
    "Trust no result of a split GPU here; give each model a process of its own.",
)
OTHER_ERROR = Kind(
    "other_error",
    Severity.FAIL,
    "filling {device} beyond its limit of {limit_mib:.0f} MiB raised {error}",
    "Programs that catch tf.errors.ResourceExhaustedError miss this error: look up its text.",
)


class Part(Record):
    """One logical device that was filled."""

    tensors: int
    """How many tensors of :data:`TENSOR_BYTES` it gave out."""
    ended: Raised | None
    """What ended the filling; None where it gave out twice its limit and was let be."""
    intact: int
    """Of these tensors, how many held what was written to them, once every part was full."""
    kernel: Kernel
    """Run last, with the tensors gone."""


class Reading(probe.Reading):
    """How much each part gave out."""

    given: tuple[str, ...]
    """PCI bus ids of the GPUs that the probe was given, the first of which is split."""
    seen: int
    """GPUs that TensorFlow lists."""
    parts: tuple[Part, ...] = ()
    """In the order of TensorFlow's numbers and of filling; empty where TensorFlow lists too few GPUs."""
    before: MemoryUse | None = None
    """Of the split GPU, after the CUDA context was made, before the first tensor."""
    full: MemoryUse | None = None
    """With every part full."""

    def figure(self) -> str:
        if not self.parts:
            return f"TensorFlow lists {self.seen} of {len(self.given)} GPUs"
        gave = " + ".join(f"{_gave(part) / MIB:.0f}" for part in self.parts)
        return f"{gave} MiB given out, limit {LIMIT_BYTES / MIB:.0f} MiB each"


def _gave(part: Part) -> int:
    return part.tensors * TENSOR_BYTES


def measure(ctx: Context) -> Reading:
    tf = ctx.tf
    given = tuple(gpu.pci_bus_id for gpu in ctx.gpus)
    without_allocation_retry(ctx)
    physical = tf.config.list_physical_devices("GPU")
    if len(physical) < len(given):
        return Reading(given, len(physical))
    limit = tf.config.LogicalDeviceConfiguration(memory_limit=LIMIT_BYTES // MIB)
    tf.config.set_visible_devices(physical[:1], "GPU")
    tf.config.set_logical_device_configuration(physical[0], [limit] * PARTS)
    tf.config.set_soft_device_placement(False)
    with ctx.placements() as log:
        logical = [short_device(device.name) for device in tf.config.list_logical_devices("GPU")]
    created = created_devices(log.lines)
    before = ctx.memory(ctx.gpus[0])
    filled: list[list[Any]] = []
    ended = []
    for number, name in enumerate(logical, start=1):
        filled.append([])
        ended.append(ctx.attempt(partial(_fill, tf, name, number, filled[-1])))
    full = ctx.memory(ctx.gpus[0])
    intact = [
        sum(bool((tensor.numpy() == number).all()) for tensor in tensors)
        for number, tensors in enumerate(filled, start=1)
    ]
    counts = [len(tensors) for tensors in filled]
    filled.clear()
    refuse_disturbance(before, full)
    parts = []
    for name, count, error, whole in zip(logical, counts, ended, intact, strict=True):
        with tf.device(name):
            matrix = tf.constant(MATRIX)
            product = tf.matmul(matrix, matrix)
        ran_on = short_device(product.device)
        parts.append(Part(count, error, whole, Kernel(ran_on, created.get(ran_on, ""), is_square(product))))
    return Reading(given, len(physical), tuple(parts), before, full)


def _fill(tf: Any, device: str, number: int, tensors: list[Any]) -> None:
    """Put tensors full of ``number`` on ``device`` until it raises, or has given out twice its limit."""
    with tf.device(device):
        while len(tensors) < 2 * LIMIT_BYTES // TENSOR_BYTES:
            tensors.append(tf.fill([TENSOR_BYTES // 4], float(number)))


def judge(reading: Reading, facts: Facts, limits: Limits) -> Iterator[Judgement]:
    if reading.seen < len(reading.given):
        yield GPU_NOT_SEEN.found(seen=reading.seen, given=len(reading.given))
        return
    if len(reading.parts) != PARTS or reading.before is None or reading.full is None:
        yield WRONG_COUNT.found(count=len(reading.parts), wanted=PARTS)
        return
    limit_mib = LIMIT_BYTES / MIB
    first, second = reading.parts
    for part in reading.parts:
        device = part.kernel.device
        if part.ended is None or _gave(part) > LIMIT_BYTES:
            yield LIMIT_IGNORED.found(what=f"{device} gave out", mib=_gave(part) / MIB, limit_mib=limit_mib)
        elif part.ended.type != "ResourceExhaustedError":
            yield OTHER_ERROR.found(device=device, limit_mib=limit_mib, error=part.ended.brief)
        yield from judge_kernel(part.kernel, reading.given[0])
    rose = taken(reading.before, reading.full)
    gave: dict[str, Figure] = {"first_mib": _gave(first) / MIB, "second_mib": _gave(second) / MIB}
    if rose > PARTS * LIMIT_BYTES + SLACK_BYTES:
        yield LIMIT_IGNORED.found(what="both parts together took", mib=rose / MIB, limit_mib=PARTS * limit_mib)
    elif rose < PARTS * LIMIT_BYTES - TENSOR_BYTES:
        yield NOT_WHOLE.found(taken_mib=rose / MIB, limit_mib=PARTS * limit_mib, **gave)
    elif second.tensors < first.tensors:
        yield NOT_APART.found(limit_mib=limit_mib, **gave)
    if first.intact < first.tensors:
        yield OVERWRITTEN.found(intact=first.intact, count=first.tensors)


_PCI = "0000:3b:00.0"
_OOM = Raised("ResourceExhaustedError", "OOM when allocating tensor with shape[2097152] and type float")


def _part(
    number: int,
    *,
    tensors: int = 7,
    ended: Raised | None = _OOM,
    intact: int | None = None,
    pci_bus_id: str = _PCI,
    correct: bool = True,
) -> Part:
    kernel = Kernel(f"GPU:{number}", pci_bus_id, correct)
    return Part(tensors, ended, tensors if intact is None else intact, kernel)


def _case(
    name: str,
    *expect: str,
    first: Part = _part(0),  # noqa: B008  # immutable
    second: Part = _part(1),  # noqa: B008  # immutable
    rose_mib: int = 128,
    verified: tuple[str, ...] = (_PCI,),
) -> Case:
    before, full = (MemoryUse((450 + mib) * MIB, None) for mib in (0, rose_mib))
    return Case(name, expect, Reading((_PCI,), 1, (first, second), before, full), verified=verified)


CASES = (
    _case("two parts"),
    Case("the split was ignored", (WRONG_COUNT.name,), Reading((_PCI,), 1, (_part(0),))),
    _case("took more than both", LIMIT_IGNORED.name, rose_mib=900),
    _case("a part without limit", LIMIT_IGNORED.name, second=_part(1, tensors=16, ended=None)),
    _case("a GPU nearly full", NOT_WHOLE.name, second=_part(1, tensors=4), rose_mib=100),
    _case("one takes from the other", NOT_APART.name, second=_part(1, tensors=1)),
    _case("one writes into the other", OVERWRITTEN.name, first=_part(0, intact=3)),
    _case("an unknown error", OTHER_ERROR.name, second=_part(1, ended=Raised("InternalError", "CUDA error"))),
    _case("on another GPU", OTHER_GPU.name, second=_part(1, pci_bus_id="0000:af:00.0")),
    _case("a wrong product", WRONG_RESULT.name, second=_part(1, correct=False)),
    Case("TensorFlow without GPU", (GPU_NOT_SEEN.name,), Reading((_PCI,), 0)),
)
