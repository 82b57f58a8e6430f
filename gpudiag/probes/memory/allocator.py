"""`TF_GPU_ALLOCATOR=cuda_malloc_async` takes memory as tensors need it; a misspelt value is ignored silently.

What it does
    Makes a logical device with a limit of 128 MiB on the first GPU in two processes: first with
    `TF_GPU_ALLOCATOR=cuda_malloc_Async`, misspelt, then with `cuda_malloc_async`. In each a small tensor is made on it,
    in the second also one of 64 MiB, and a matrix product. NVML shows how TensorFlow's own allocator, which takes the
    limit at once, and that of CUDA, which does not, differ; and whether the log names the allocator is recorded. The
    second process asks the driver first whether the GPU has memory pools: without them TensorFlow would abort.
Why it matters
    TensorFlow itself recommends the variable if memory is fragmented. With it no `memory_limit` or fraction holds,
    and a program on a GPU without memory pools dies with SIGABRT. The value must match exactly, or nothing changes.
What to do
    `export TF_GPU_ALLOCATOR=cuda_malloc_async` before the program starts, in exactly these letters; look for
    `Using CUDA malloc Async allocator for GPU: 0` in the log.
"""

from __future__ import annotations

import ctypes
import os
import time
from typing import Any

import msgspec

from gpudiag import fix, probe
from gpudiag.knowledge.placement import created_devices
from gpudiag.model.facts import Facts
from gpudiag.model.report import Gpu, Limit
from gpudiag.probe import (
    MIB,
    SLACK_BYTES,
    Context,
    Findings,
    Kernel,
    MemoryUse,
    Raised,
    fail,
    mib,
    note,
    refuse_disturbance,
)
from gpudiag.probes.common import MATRIX, without_allocation_retry
from gpudiag.record import Record

LIMIT_BYTES = 128 * MIB
TENSOR_BYTES = 64 * MIB
RIGHT, MISSPELT = "cuda_malloc_async", "cuda_malloc_Async"

PROBE = probe.Probe(
    needs=probe.Needs(gpus=1, free_bytes=LIMIT_BYTES),
    scope=probe.Scope.ALL_GPUS,
    exclusive=True,
    env={"TF_GPU_ALLOCATOR": RIGHT},
)


class Fault(probe.KernelFaults):
    no_memory_pools = note(
        f"{{pci_bus_id}} has no memory pools by its driver: TF_GPU_ALLOCATOR={RIGHT} would abort every program on it",
        means="The GPU's driver has no memory pools: TF_GPU_ALLOCATOR=cuda_malloc_async would abort every program.",
        do=f"Do not set TF_GPU_ALLOCATOR={RIGHT} here. It needs compute capability 6.0 and a driver for CUDA 11.2.",
    )
    aborts = fail(
        f"{{pci_bus_id}} has no memory pools by its driver, and TF_GPU_ALLOCATOR={RIGHT} is set: programs on it abort",
        means="The GPU's driver has no memory pools, and TF_GPU_ALLOCATOR=cuda_malloc_async is set: programs abort.",
        do=fix.unset("TF_GPU_ALLOCATOR"),
    )
    ignored = fail(
        f"TF_GPU_ALLOCATOR={RIGHT} had no effect: the first tensor took {{taken_bytes}}, the whole limit",
        means="TF_GPU_ALLOCATOR=cuda_malloc_async had no effect: the first tensor took the whole limit.",
        do=fix.export("TF_GPU_ALLOCATOR", RIGHT, "before the first GPU device is made, best outside the program"),
    )
    not_named = note(
        f"TF_GPU_ALLOCATOR={RIGHT} had its effect, but TensorFlow's log does not name the allocator",
        do="Do not look in the log for the allocator; report to gpudiag this release of TensorFlow.",
    )
    typo_noticed = note(
        f"TF_GPU_ALLOCATOR={MISSPELT}, misspelt, was not ignored: the first tensor took {{taken_bytes}} "
        "of a limit of {limit_bytes}",
        means="TF_GPU_ALLOCATOR=cuda_malloc_Async, misspelt, was not ignored.",
        do=fix.export("TF_GPU_ALLOCATOR", RIGHT, "spelled as documented"),
    )
    failed = fail(
        "with TF_GPU_ALLOCATOR={value} a tensor of {tensor_bytes} or less could not be made: {error}",
        means="With TF_GPU_ALLOCATOR set, a small tensor could not be made.",
        do=fix.unset("TF_GPU_ALLOCATOR"),
    )


class AllocatorTrial(Record):
    """A process with one value of ``TF_GPU_ALLOCATOR``."""

    named: bool
    """True if the log names CUDA's allocator."""
    before: MemoryUse
    """Memory after the CUDA context was made, before the first tensor."""
    first: MemoryUse
    """Memory after a tensor of 16 bytes."""
    grown: MemoryUse
    """Memory with a tensor of :data:`TENSOR_BYTES` as well."""
    failed: Raised | None = None
    """The error of making the device or its tensors."""
    kernel: Kernel | None = None
    """A matrix product that was computed last; None if it failed."""


class Reading(probe.GpuReading):
    """TensorFlow's use of memory with a correct value of the variable, and with a misspelt one."""

    pools: tuple[bool | None, ...]
    """Whether each GPU has memory pools, by the driver; None if the driver gave no answer."""
    misspelt: AllocatorTrial
    right: AllocatorTrial | None = None
    """The process with the correct value; None also if the first GPU has no memory pools."""

    def figure(self) -> str:
        typo = f"misspelt {mib(self.misspelt.first - self.misspelt.before)}"
        if self.right is None:
            return f"no memory pools; {typo}"
        first, grown = self.right.first - self.right.before, self.right.grown - self.right.before
        return f"{first / MIB:.0f}, then {mib(grown)}; {typo} at once"

    def limits(self) -> tuple[Limit, ...]:
        return () if self.right is None else (self.right.before.plus("memory_limit", LIMIT_BYTES),)


def peer(ctx: Context) -> None:
    # TensorFlow reads it when it makes the allocator.
    os.environ["TF_GPU_ALLOCATOR"] = MISSPELT
    without_allocation_retry(ctx)
    ctx.peer.meet("begin")
    physical = ctx.tf.config.list_physical_devices("GPU")
    ctx.peer.meet("tried", msgspec.to_builtins(_try(ctx, physical)) if len(physical) == len(ctx.gpus) else None)


def measure(ctx: Context) -> Reading:
    without_allocation_retry(ctx)
    idle = ctx.memory(ctx.gpus[0])
    ctx.peer.meet("begin")
    trial = ctx.peer.meet("tried")
    physical = ctx.list_gpus()
    misspelt = msgspec.convert(trial, AllocatorTrial)
    pools = tuple(_has_pools(ordinal) for ordinal in range(len(physical)))
    if pools[0] is False:
        return Reading(pools, misspelt)
    _wait_for_memory(ctx, ctx.gpus[0], idle)
    return Reading(pools, misspelt, _try(ctx, physical))


def _try(ctx: Context, physical: list[Any]) -> AllocatorTrial:
    tf, gpu = ctx.tf, ctx.gpus[0]
    limit = tf.config.LogicalDeviceConfiguration(memory_limit=LIMIT_BYTES // MIB)
    tf.config.set_visible_devices(physical[:1], "GPU")
    tf.config.set_logical_device_configuration(physical[0], [limit])
    tf.config.set_soft_device_placement(False)
    uses: list[MemoryUse] = []
    products: list[Any] = []

    def use() -> None:
        tf.config.list_logical_devices("GPU")
        uses.append(ctx.memory(gpu))
        with tf.device("/GPU:0"):
            matrix = tf.identity(tf.constant(MATRIX))
            uses.append(ctx.memory(gpu))
            large = tf.zeros([TENSOR_BYTES // 4])
            uses.append(ctx.memory(gpu))
            del large
            # Not before: the matrix library takes its own memory.
            products.append(tf.matmul(matrix, matrix))

    with ctx.placements() as log:
        failed = ctx.attempt(use)
    named = any("Using CUDA malloc Async allocator" in line for line in log.lines)
    if failed:
        now = ctx.memory(gpu)
        return AllocatorTrial(named, now, now, now, failed)
    before, first, grown = uses
    refuse_disturbance(before, first, grown)
    return AllocatorTrial(named, before, first, grown, None, ctx.verify(products[0], created_devices(log.lines)))


def _has_pools(ordinal: int) -> bool | None:
    """Ask the driver, which TensorFlow has initialised, whether a GPU has memory pools."""
    memory_pools_supported = 115  # CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED in cuda.h
    device, value = ctypes.c_int(), ctypes.c_int()
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        failed = driver.cuDeviceGet(ctypes.byref(device), ordinal) or driver.cuDeviceGetAttribute(
            ctypes.byref(value), memory_pools_supported, device
        )
    except (OSError, AttributeError):
        return None
    return None if failed else bool(value.value)


def _wait_for_memory(ctx: Context, gpu: Gpu, idle: MemoryUse) -> None:
    """Wait up to 5 s until the other process, whose work is done, has released its memory."""
    until = time.monotonic() + 5
    while ctx.memory(gpu).used_bytes > idle.used_bytes and time.monotonic() < until:
        time.sleep(0.01)


def judge(reading: Reading, facts: Facts) -> Findings:
    kind = Fault.aborts if facts.variables.get("TF_GPU_ALLOCATOR") == RIGHT else Fault.no_memory_pools
    for pci_bus_id, pools in zip(reading.given, reading.pools, strict=True):
        if pools is False:
            yield kind.found(pci_bus_id=pci_bus_id)
    for value, trial in ((MISSPELT, reading.misspelt), (RIGHT, reading.right)):
        if trial is None:
            continue
        if trial.failed or trial.kernel is None:
            error = trial.failed.brief if trial.failed else "no result"
            yield Fault.failed.found(value=value, tensor_bytes=TENSOR_BYTES, error=error)
            continue
        first = trial.first - trial.before
        at_once = first >= LIMIT_BYTES - SLACK_BYTES
        if value == RIGHT and at_once:
            yield Fault.ignored.found(taken_bytes=first)
        elif value == RIGHT and not trial.named:
            yield Fault.not_named.found()
        elif value == MISSPELT and (trial.named or not at_once):
            yield Fault.typo_noticed.found(taken_bytes=first, limit_bytes=LIMIT_BYTES)
        yield from trial.kernel.verified_on(reading.given[0])
