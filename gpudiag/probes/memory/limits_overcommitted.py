"""Limits may add up to more than a GPU has; the error comes later, at the first tensor that no longer fits.

What it does
    Makes two logical devices on the first GPU, each with a limit of the GPU's whole memory, under forced growth, so
    that next to nothing is taken. It makes a small tensor on each, and then asks `GPU:1` for a little more than NVML
    shows as free: less than its limit. That must fail, and nothing is filled by it. Both must compute afterwards.
Why it matters
    TensorFlow does not add limits up, neither those of one program nor those of several. A configuration that cannot
    work is accepted, each device is created with its full limit, and the program fails in the middle of its work.
    Without growth the devices that come first take what there is, and the last fails at its first operation.
What a failure means
    `refused`: the limits were not accepted, as they are in every release known to us.
    `lowered`: a logical device was created with another limit than it was given.
    `no_failure`: a tensor larger than the free memory was made: its memory is not, or not all, on the GPU.
    `other_error`: the tensor that does not fit raised something else than `tf.errors.ResourceExhaustedError`.
    `not_survived`: after the error a small tensor could not be made.
    `gpu_not_seen`, `other_gpu`, `wrong_result`: TensorFlow does not use the GPU that it was given, or not correctly.
What to do
    Add them up yourself: the `memory_limit` of every `tf.config.LogicalDeviceConfiguration(memory_limit=4096)` on a
    GPU, in MiB, and some 500 MiB for each process, must stay below what `nvidia-smi` shows as free.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

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
    WRONG_RESULT,
    Kernel,
    ceilings_mib,
    is_square,
    judge_kernel,
    without_allocation_retry,
)
from gpudiag.record import Record

PROBE = probe.Probe(
    needs=Needs(gpus=1, free_bytes=64 * MIB),
    scope=Scope.ALL_GPUS,
    exclusive=True,
    # Growth, because the limits are the whole memory: forced, because only so logical devices have it. Other allocators
    # know no limit.
    env={"TF_FORCE_GPU_ALLOW_GROWTH": "true", "TF_GPU_ALLOCATOR": None, "TF_PER_DEVICE_MEMORY_LIMIT_MB": None},
)

REFUSED = Kind(
    "refused",
    Severity.WARNING,
    "{parts} limits of {limit_mib:.0f} MiB on a GPU of as much memory were refused: {error}",
    "Keep the sum of all memory_limit on a GPU below what nvidia-smi shows as free.",
)
LOWERED = Kind(
    "lowered",
    Severity.WARNING,
    "{device} was created with {ceiling_mib} MiB, its limit is {limit_mib:.0f} MiB",
    "Go by the `Created device` lines of the log for what a logical device may take, not by memory_limit.",
)
NO_FAILURE = Kind(
    "no_failure",
    Severity.FAIL,
    "a tensor of {tensor_mib:.0f} MiB was made on GPU:1, the GPU had {free_mib:.0f} MiB free",
    "Keep the sum of all memory_limit on a GPU below what nvidia-smi shows as free, and look in nvidia-smi where the "
    "memory went.",
)
OTHER_ERROR = Kind(
    "other_error",
    Severity.FAIL,
    "a tensor of {tensor_mib:.0f} MiB, {free_mib:.0f} MiB are free, raised {error}",
    "Programs that catch tf.errors.ResourceExhaustedError miss this error: look up its text.",
)
NOT_SURVIVED = Kind(
    "not_survived",
    Severity.FAIL,
    "after a tensor that did not fit, a tensor of 16 bytes on {device} raised {error}",
    "Do not go on after tf.errors.ResourceExhaustedError here: end the process and start a new one.",
)

PARTS = 2
TOO_MUCH_BYTES = 16 * MIB
"""By how much the tensor is larger than what is free."""


class Part(Record):
    """One logical device."""

    ceiling_mib: int
    """What it was created with, by TensorFlow's ``Created device`` line; 0 where there was none."""
    failed: Raised | None
    """What a small tensor raised after the one that did not fit."""
    kernel: Kernel | None
    """A product computed after that; None where it could not be."""


class Reading(probe.Reading):
    """What was promised, and what was there."""

    given: tuple[str, ...]
    """PCI bus ids of the GPUs that the probe was given, the first of which is split."""
    seen: int
    """GPUs that TensorFlow lists."""
    limit_mib: int = 0
    """Of each part."""
    refused: Raised | None = None
    """What creating the logical devices raised."""
    free_bytes: int = 0
    """Of the split GPU by NVML, before the large tensor was asked for."""
    exceeded: Raised | None = None
    """What a tensor of :data:`TOO_MUCH_BYTES` more than that raised on ``GPU:1``."""
    parts: tuple[Part, ...] = ()
    """Empty where TensorFlow lists too few GPUs or refused the limits."""

    def figure(self) -> str:
        if self.seen < len(self.given):
            return f"TensorFlow lists {self.seen} of {len(self.given)} GPUs"
        if self.refused:
            return f"{PARTS} limits of {self.limit_mib} MiB refused"
        return f"{PARTS} x {self.limit_mib} MiB accepted, {self.free_bytes / MIB:.0f} MiB free"


def measure(ctx: Context) -> Reading:
    tf = ctx.tf
    gpu = ctx.gpus[0]
    given = tuple(one.pci_bus_id for one in ctx.gpus)
    without_allocation_retry(ctx)
    physical = tf.config.list_physical_devices("GPU")
    if len(physical) < len(given):
        return Reading(given, len(physical))
    limit_mib = gpu.memory_total_bytes // MIB
    limit = tf.config.LogicalDeviceConfiguration(memory_limit=limit_mib)
    tf.config.set_visible_devices(physical[:1], "GPU")
    tf.config.set_logical_device_configuration(physical[0], [limit] * PARTS)
    tf.config.set_soft_device_placement(False)
    with ctx.placements() as log:
        refused = ctx.attempt(lambda: tf.config.list_logical_devices("GPU"))
    if refused:
        return Reading(given, len(physical), limit_mib, refused)
    names = [f"GPU:{number}" for number in range(PARTS)]
    for name in names:
        with tf.device(name):
            tf.identity(tf.constant(MATRIX))
    free = gpu.memory_total_bytes - ctx.memory(gpu).used_bytes
    rows = (free + TOO_MUCH_BYTES) // MIB + 1
    with tf.device(names[-1]):
        exceeded = ctx.attempt(lambda: tf.zeros([rows, MIB // 4]))
    created, bus_ids = ceilings_mib(log.lines), created_devices(log.lines)
    parts = []
    for name in names:
        kernels: list[Kernel] = []
        failed = ctx.attempt(partial(_compute, tf, name, bus_ids, kernels))
        parts.append(Part(created.get(name, 0), failed, kernels[0] if kernels else None))
    return Reading(given, len(physical), limit_mib, None, free, exceeded, tuple(parts))


def _compute(tf: Any, device: str, bus_ids: dict[str, str], kernels: list[Kernel]) -> None:
    """Multiply matrices on ``device`` and add that to ``kernels``."""
    with tf.device(device):
        matrix = tf.constant(MATRIX)
        product = tf.matmul(matrix, matrix)
    ran_on = short_device(product.device)
    kernels.append(Kernel(ran_on, bus_ids.get(ran_on, ""), is_square(product)))


def judge(reading: Reading, facts: Facts, limits: Limits) -> Iterator[Judgement]:
    if reading.seen < len(reading.given):
        yield GPU_NOT_SEEN.found(seen=reading.seen, given=len(reading.given))
        return
    if reading.refused:
        yield REFUSED.found(parts=PARTS, limit_mib=reading.limit_mib, error=reading.refused.brief)
        return
    free_mib = reading.free_bytes / MIB
    tensor_mib = (reading.free_bytes + TOO_MUCH_BYTES) / MIB
    if reading.exceeded is None:
        yield NO_FAILURE.found(tensor_mib=tensor_mib, free_mib=free_mib)
    elif reading.exceeded.type != "ResourceExhaustedError":
        yield OTHER_ERROR.found(tensor_mib=tensor_mib, free_mib=free_mib, error=reading.exceeded.brief)
    for number, part in enumerate(reading.parts):
        device = f"GPU:{number}"
        if part.ceiling_mib != reading.limit_mib:
            yield LOWERED.found(device=device, ceiling_mib=part.ceiling_mib, limit_mib=reading.limit_mib)
        if part.failed:
            yield NOT_SURVIVED.found(device=device, error=part.failed.brief)
        if part.kernel:
            yield from judge_kernel(part.kernel, reading.given[0])


_PCI = "0000:3b:00.0"
_OOM = Raised("ResourceExhaustedError", "OOM when allocating tensor with shape[15982,262144] and type float")
_DEAD = Raised("InternalError", "CUDA error")


def _part(
    number: int,
    *,
    ceiling_mib: int = 16384,
    failed: Raised | None = None,
    pci_bus_id: str = _PCI,
    correct: bool = True,
) -> Part:
    return Part(ceiling_mib, failed, None if failed else Kernel(f"GPU:{number}", pci_bus_id, correct))


def _case(
    name: str,
    *expect: str,
    exceeded: Raised | None = _OOM,
    second: Part = _part(1),  # noqa: B008  # immutable
) -> Case:
    reading = Reading((_PCI,), 1, 16384, None, 15980 * MIB, exceeded, (_part(0), second))
    return Case(name, expect, reading, verified=(_PCI,))


CASES = (
    _case("accepted, and not there"),
    Case("refused", (REFUSED.name,), Reading((_PCI,), 1, 16384, Raised("InvalidArgumentError", "too much"))),
    _case("a limit lowered", LOWERED.name, second=_part(1, ceiling_mib=8000)),
    _case("a tensor that cannot be", NO_FAILURE.name, exceeded=None),
    _case("an unknown error", OTHER_ERROR.name, exceeded=_DEAD),
    _case("dead afterwards", NOT_SURVIVED.name, second=_part(1, failed=_DEAD)),
    _case("another GPU", OTHER_GPU.name, second=_part(1, pci_bus_id="0000:af:00.0")),
    _case("a wrong product", WRONG_RESULT.name, second=_part(1, correct=False)),
    Case("TensorFlow without GPU", (GPU_NOT_SEEN.name,), Reading((_PCI,), 0)),
)
