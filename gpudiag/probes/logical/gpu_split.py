"""A GPU split into two logical devices computes on both, within their limits, and later GPUs shift by one number.

What it does
    Splits the first GPU into two logical devices of 128 MiB each and gives every other GPU one. On each logical device
    it makes a small tensor, which takes the device's whole limit, and a matrix product; on `GPU:0` it asks for twice
    the limit. Which GPU is behind a logical device is taken from two sources: the PCI bus id in TensorFlow's
    `Created device` line, and the GPU whose memory rose by NVML.
Why it matters
    Logical devices are how one GPU is shared within a program, and how code for several GPUs is tested on one. They
    shift the numbers: with the first GPU split in two, the second GPU is `GPU:2`, and code that says `GPU:1` computes
    on the first.
What a failure means
    `wrong_count`: TensorFlow made another number of logical devices than it was asked for.
    `other_gpu`: a logical device is not on the GPU that it should be on.
    `memory_elsewhere`: the memory of a logical device was taken of another GPU than the one it should be on.
    `limit_ignored`: a logical device took, or gave out, more than its limit.
    `not_at_once`: the first tensor on a logical device took less than its limit: the GPU was nearly full.
    `other_error`: asking for too much raised something else than `tf.errors.ResourceExhaustedError`.
    `gpu_not_seen`, `wrong_result`: TensorFlow does not use the GPUs that it was given, or not correctly.
What to do
    Call `tf.config.set_logical_device_configuration(gpu, [...])` right after the import, with a `memory_limit` in MiB
    for each part. Name devices by `tf.config.list_logical_devices("GPU")` and never by a number written in the source.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudiag import probe
from gpudiag.hostfacts import Facts
from gpudiag.model import Limits, Severity
from gpudiag.placement import created_devices, short_device
from gpudiag.probe import Case, Context, Judgement, Kind, Needs, Raised, Scope
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
    # Forced growth would reach the logical devices too, and other allocators know no limit (memory.fraction tells):
    # the split could not be seen in the memory taken.
    env={"TF_FORCE_GPU_ALLOW_GROWTH": None, "TF_GPU_ALLOCATOR": None},
)

WRONG_COUNT = Kind(
    "wrong_count",
    Severity.FAIL,
    "TensorFlow made {count} logical GPUs, {wanted} were asked for",
    "Configure before TensorFlow initialises: tf.config.set_logical_device_configuration(gpu, [...]) "
    "as the first call after the import",
)
MEMORY_ELSEWHERE = Kind(
    "memory_elsewhere",
    Severity.FAIL,
    "the first tensor on {device} raised the memory of {most} by {most_mib:.0f} MiB and that of {pci_bus_id} by "
    "{taken_mib:.0f} MiB",
    "Look where it went: run nvidia-smi while the program runs, and choose GPUs by UUID in CUDA_VISIBLE_DEVICES.",
)
LIMIT_IGNORED = Kind(
    "limit_ignored",
    Severity.FAIL,
    "{device} took or gave out {taken_mib:.0f} MiB, its limit is {limit_mib:.0f} MiB",
    "Do not share this GPU between programs by limits; give each one its own: export CUDA_VISIBLE_DEVICES=GPU-...",
)
NOT_AT_ONCE = Kind(
    "not_at_once",
    Severity.WARNING,
    "the first tensor on {device} took {taken_mib:.0f} MiB of its limit of {limit_mib:.0f} MiB",
    "Look in nvidia-smi for what else fills this GPU, and end it.",
)
OTHER_ERROR = Kind(
    "other_error",
    Severity.FAIL,
    "asking GPU:0 for {beyond_mib:.0f} MiB above its limit of {limit_mib:.0f} MiB raised {error}",
    "Programs that catch tf.errors.ResourceExhaustedError miss this error: look up its text.",
)

LIMIT_BYTES = 128 * MIB
BEYOND_BYTES = 2 * LIMIT_BYTES


class Part(Record):
    """One logical device."""

    kernel: Kernel
    rose: dict[str, int]
    """By how many bytes the memory of each GPU (PCI bus id) rose with the first tensor on this device."""


class Reading(probe.Reading):
    """What was made of the GPUs."""

    given: tuple[str, ...]
    """PCI bus ids of the GPUs that the probe was given, in the order of ``CUDA_VISIBLE_DEVICES``."""
    seen: int
    """GPUs that TensorFlow lists."""
    parts: tuple[Part, ...]
    """In the order of TensorFlow's numbers; empty where TensorFlow lists too few GPUs."""
    exceeded: Raised | None = None
    """What asking ``GPU:0`` for :data:`BEYOND_BYTES` raised."""

    def figure(self) -> str:
        if not self.parts:
            return f"TensorFlow lists {self.seen} of {len(self.given)} GPUs"
        return f"{len(self.parts)} logical devices on {len(self.given)} GPUs, limit {LIMIT_BYTES / MIB:.0f} MiB each"


def measure(ctx: Context) -> Reading:
    tf = ctx.tf
    given = tuple(gpu.pci_bus_id for gpu in ctx.gpus)
    without_allocation_retry(ctx)
    physical = tf.config.list_physical_devices("GPU")
    if len(physical) < len(given):
        return Reading(given, len(physical), ())
    for number, device in enumerate(physical):
        limit = tf.config.LogicalDeviceConfiguration(memory_limit=LIMIT_BYTES // MIB)
        tf.config.set_logical_device_configuration(device, [limit] * (2 if number == 0 else 1))
    tf.config.set_soft_device_placement(False)
    with ctx.placements() as log:
        logical = [short_device(device.name) for device in tf.config.list_logical_devices("GPU")]
    created = created_devices(log.lines)
    matrices, rises = [], []
    for name in logical:
        before = [ctx.memory(gpu) for gpu in ctx.gpus]
        with tf.device(name):
            matrices.append(tf.identity(tf.constant(MATRIX)))
        after = [ctx.memory(gpu) for gpu in ctx.gpus]
        for earlier, later in zip(before, after, strict=True):
            refuse_disturbance(earlier, later)
        rises.append(dict(zip(given, map(taken, before, after), strict=True)))
    with tf.device("GPU:0"):
        exceeded = ctx.attempt(lambda: tf.zeros([BEYOND_BYTES // 4]))
    parts = []
    # Last: the matrix library takes memory of its own beside the limits.
    for name, matrix, rose in zip(logical, matrices, rises, strict=True):
        with tf.device(name):
            product = tf.matmul(matrix, matrix)
        ran_on = short_device(product.device)
        parts.append(Part(Kernel(ran_on, created.get(ran_on, ""), is_square(product)), rose))
    return Reading(given, len(physical), tuple(parts), exceeded)


def judge(reading: Reading, facts: Facts, limits: Limits) -> Iterator[Judgement]:
    if reading.seen < len(reading.given):
        yield GPU_NOT_SEEN.found(seen=reading.seen, given=len(reading.given))
        return
    expected = (reading.given[0], *reading.given)
    if len(reading.parts) != len(expected):
        yield WRONG_COUNT.found(count=len(reading.parts), wanted=len(expected))
        return
    limit_mib = LIMIT_BYTES / MIB
    for part, pci_bus_id in zip(reading.parts, expected, strict=True):
        most = max(part.rose, key=lambda bus_id: part.rose[bus_id])
        taken_mib, most_mib = part.rose[pci_bus_id] / MIB, part.rose[most] / MIB
        device = part.kernel.device
        if part.kernel.pci_bus_id == pci_bus_id and most != pci_bus_id:
            yield MEMORY_ELSEWHERE.found(
                device=device, most=most, most_mib=most_mib, pci_bus_id=pci_bus_id, taken_mib=taken_mib
            )
            continue
        yield from judge_kernel(part.kernel, pci_bus_id)
        if part.rose[most] > LIMIT_BYTES + SLACK_BYTES:
            yield LIMIT_IGNORED.found(device=device, taken_mib=most_mib, limit_mib=limit_mib)
        elif part.rose[most] < LIMIT_BYTES - SLACK_BYTES:
            yield NOT_AT_ONCE.found(device=device, taken_mib=most_mib, limit_mib=limit_mib)
    beyond_mib = BEYOND_BYTES / MIB
    if reading.exceeded is None:
        yield LIMIT_IGNORED.found(device="GPU:0", taken_mib=beyond_mib, limit_mib=limit_mib)
    elif reading.exceeded.type != "ResourceExhaustedError":
        yield OTHER_ERROR.found(beyond_mib=beyond_mib, limit_mib=limit_mib, error=reading.exceeded.brief)


_FIRST, _SECOND = "0000:3b:00.0", "0000:af:00.0"
_OOM = Raised("ResourceExhaustedError", "OOM when allocating tensor with shape[67108864] and type float")


def _part(number: int, pci_bus_id: str, rose_on: str = "", *, mib: int = 128, correct: bool = True) -> Part:
    rose = {bus_id: mib * MIB if bus_id == (rose_on or pci_bus_id) else 0 for bus_id in (_FIRST, _SECOND)}
    return Part(Kernel(f"GPU:{number}", pci_bus_id, correct), rose)


_SPLIT = (_part(0, _FIRST), _part(1, _FIRST), _part(2, _SECOND))


def _case(
    name: str,
    *expect: str,
    parts: tuple[Part, ...] = _SPLIT,
    exceeded: Raised | None = _OOM,
    verified: tuple[str, ...] = (_FIRST, _SECOND),
) -> Case:
    return Case(name, expect, Reading((_FIRST, _SECOND), 2, parts, exceeded), verified=verified)


CASES = (
    _case("two GPUs, the first split"),
    Case(
        "one GPU, split",
        (),
        Reading((_FIRST,), 1, (_part(0, _FIRST), _part(1, _FIRST)), _OOM),
        verified=(_FIRST,),
    ),
    _case("the split was ignored", WRONG_COUNT.name, parts=(_part(0, _FIRST), _part(1, _SECOND)), verified=()),
    _case(
        "numbers in another order",
        OTHER_GPU.name,
        OTHER_GPU.name,
        parts=(_part(0, _FIRST), _part(1, _SECOND), _part(2, _FIRST)),
        verified=(_FIRST,),
    ),
    _case(
        "memory of the other GPU",
        MEMORY_ELSEWHERE.name,
        parts=(*_SPLIT[:2], _part(2, _SECOND, _FIRST)),
        verified=(_FIRST,),
    ),
    _case(
        "more than the limit at once",
        LIMIT_IGNORED.name,
        parts=(*_SPLIT[:2], _part(2, _SECOND, mib=900)),
    ),
    _case(
        "a GPU nearly full",
        NOT_AT_ONCE.name,
        parts=(*_SPLIT[:2], _part(2, _SECOND, mib=29)),
    ),
    _case("beyond the limit", LIMIT_IGNORED.name, exceeded=None),
    _case("an unknown error", OTHER_ERROR.name, exceeded=Raised("InternalError", "CUDA error")),
    _case(
        "a wrong product", WRONG_RESULT.name, parts=(*_SPLIT[:2], _part(2, _SECOND, correct=False)), verified=(_FIRST,)
    ),
    Case("TensorFlow lists one of two", (GPU_NOT_SEEN.name,), Reading((_FIRST, _SECOND), 1, ())),
)
