"""`TF_GPU_ALLOCATOR=cuda_malloc_async` takes memory as tensors need it; a misspelt value is ignored without a word.

What it does
    Makes a logical device with a limit of 128 MiB on the first GPU in two processes: first with
    `TF_GPU_ALLOCATOR=cuda_malloc_Async`, misspelt, then with `cuda_malloc_async`. In each a small tensor is made on it,
    in the second also one of 64 MiB, and a matrix product. NVML tells how TensorFlow's own allocator, which takes the
    limit at once, and that of CUDA, which does not, differ; and whether the log names the allocator is recorded. The
    second process asks the driver first whether the GPU has memory pools: without them TensorFlow would abort.
Why it matters
    TensorFlow itself recommends the variable where memory is fragmented. With it no `memory_limit` or fraction holds,
    and a program on a GPU without memory pools dies with SIGABRT. The value must match exactly, or nothing changes.
What a failure means
    `no_memory_pools`: the GPU cannot be used with `cuda_malloc_async`.
    `aborts`: the same, and your environment asks for it: every program that uses this GPU dies.
    `ignored`: the variable had no effect: the whole limit was taken at once.
    `not_named`: the variable had its effect, but the log does not name the allocator.
    `typo_noticed`: the misspelt value was not ignored.
    `failed`: with one of the values the device could not be made or used.
    `gpu_not_seen`, `other_gpu`, `wrong_result`: TensorFlow does not use the GPU that it was given, or not correctly.
What to do
    `export TF_GPU_ALLOCATOR=cuda_malloc_async` before the program starts, in exactly these letters; look for
    `Using CUDA malloc Async allocator for GPU: 0` in the log.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Iterator
from typing import Any

import msgspec

from gpudiag import hostfacts, probe
from gpudiag.hostfacts import EnvironmentFacts, Facts
from gpudiag.model import Gpu, Limits, Severity
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

LIMIT_BYTES = 128 * MIB
TENSOR_BYTES = 64 * MIB
RIGHT, MISSPELT = "cuda_malloc_async", "cuda_malloc_Async"

PROBE = probe.Probe(
    needs=Needs(gpus=1, free_bytes=LIMIT_BYTES),
    scope=Scope.ALL_GPUS,
    exclusive=True,
    # Growth would make the two allocators look alike, and so would memory that CUDA's takes beforehand.
    env={
        "TF_GPU_ALLOCATOR": RIGHT,
        "TF_FORCE_GPU_ALLOW_GROWTH": None,
        "TF_CUDA_MALLOC_ASYNC_SUPPORTED_PREALLOC": None,
    },
)

NO_MEMORY_POOLS = Kind(
    "no_memory_pools",
    Severity.NOTE,
    f"{{pci_bus_id}} has no memory pools by its driver: TF_GPU_ALLOCATOR={RIGHT} would abort every program on it",
    f"Do not set TF_GPU_ALLOCATOR={RIGHT} here. It needs compute capability 6.0 and a driver for CUDA 11.2.",
)
ABORTS = Kind(
    "aborts",
    Severity.FAIL,
    f"{{pci_bus_id}} has no memory pools by its driver, and TF_GPU_ALLOCATOR={RIGHT} is set: programs on it abort",
    "unset TF_GPU_ALLOCATOR",
)
IGNORED = Kind(
    "ignored",
    Severity.FAIL,
    f"TF_GPU_ALLOCATOR={RIGHT} had no effect: the first tensor took {{taken_mib:.0f}} MiB, the whole limit",
    "Set it before the first GPU device is made, best outside the program: export TF_GPU_ALLOCATOR=" + RIGHT,
)
NOT_NAMED = Kind(
    "not_named",
    Severity.NOTE,
    f"TF_GPU_ALLOCATOR={RIGHT} had its effect, but TensorFlow's log does not name the allocator",
    "Do not look in the log for the allocator; tell gpudiag's authors of this release of TensorFlow.",
)
TYPO_NOTICED = Kind(
    "typo_noticed",
    Severity.NOTE,
    f"TF_GPU_ALLOCATOR={MISSPELT}, misspelt, was not ignored: the first tensor took {{taken_mib:.0f}} MiB "
    "of a limit of {limit_mib:.0f} MiB",
    f"Spell it as documented: export TF_GPU_ALLOCATOR={RIGHT}",
)
FAILED = Kind(
    "failed",
    Severity.FAIL,
    "with TF_GPU_ALLOCATOR={value} a tensor of {tensor_mib:.0f} MiB or less could not be made: {error}",
    "unset TF_GPU_ALLOCATOR",
)


class Trial(Record):
    """One process with one value of the variable."""

    named: bool
    """True: the log names CUDA's allocator."""
    before: MemoryUse
    """After the CUDA context was made, before the first tensor."""
    first: MemoryUse
    """After a tensor of 16 bytes."""
    grown: MemoryUse
    """With one of :data:`TENSOR_BYTES` as well."""
    failed: Raised | None = None
    """What making device or tensors raised."""
    kernel: Kernel | None = None
    """Run last; None where that failed."""


class Reading(probe.Reading):
    """What either value did."""

    given: tuple[str, ...]
    """PCI bus ids of the GPUs that the probe was given, the first of which is tried."""
    seen: int
    """GPUs that TensorFlow lists."""
    pools: tuple[bool | None, ...] = ()
    """Whether each GPU has memory pools, by the driver; None where it did not tell."""
    misspelt: Trial | None = None
    """None where TensorFlow lists too few GPUs."""
    right: Trial | None = None
    """None also where the first GPU has no memory pools."""

    def figure(self) -> str:
        if self.misspelt is None:
            return f"TensorFlow lists {self.seen} of {len(self.given)} GPUs"
        typo = f"misspelt {taken(self.misspelt.before, self.misspelt.first) / MIB:.0f} MiB"
        if self.right is None:
            return f"no memory pools; {typo}"
        first, grown = taken(self.right.before, self.right.first), taken(self.right.before, self.right.grown)
        return f"{first / MIB:.0f}, then {grown / MIB:.0f} MiB; {typo} at once"


def peer(ctx: Context) -> None:
    # TensorFlow reads it when it makes the allocator.
    os.environ["TF_GPU_ALLOCATOR"] = MISSPELT
    without_allocation_retry(ctx)
    ctx.peer.meet("begin")
    physical = ctx.tf.config.list_physical_devices("GPU")
    trial = None if len(physical) < len(ctx.gpus) else msgspec.to_builtins(_try(ctx, physical))
    ctx.peer.meet("tried", [len(physical), trial])


def measure(ctx: Context) -> Reading:
    given = tuple(gpu.pci_bus_id for gpu in ctx.gpus)
    without_allocation_retry(ctx)
    idle = ctx.memory(ctx.gpus[0])
    ctx.peer.meet("begin")
    seen, trial = ctx.peer.meet("tried")
    physical = ctx.tf.config.list_physical_devices("GPU")
    if min(seen, len(physical)) < len(given):
        return Reading(given, min(seen, len(physical)))
    misspelt = msgspec.convert(trial, Trial)
    pools = tuple(_has_pools(ordinal) for ordinal in range(len(physical)))
    if pools[0] is False:
        return Reading(given, len(physical), pools, misspelt)
    _wait_for_memory(ctx, ctx.gpus[0], idle)
    return Reading(given, len(physical), pools, misspelt, _try(ctx, physical))


def _try(ctx: Context, physical: list[Any]) -> Trial:
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
            # Not before: the matrix library takes memory of its own.
            products.append(tf.matmul(matrix, matrix))

    with ctx.placements() as log:
        failed = ctx.attempt(use)
    named = any("Using CUDA malloc Async allocator" in line for line in log.lines)
    if failed:
        now = ctx.memory(gpu)
        return Trial(named, now, now, now, failed)
    before, first, grown = uses
    refuse_disturbance(before, first, grown)
    ran_on = short_device(products[0].device)
    kernel = Kernel(ran_on, created_devices(log.lines).get(ran_on, ""), is_square(products[0]))
    return Trial(named, before, first, grown, None, kernel)


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
    """Wait until the other process, which has nothing more to do, has given its memory back; 5 s at most."""
    until = time.monotonic() + 5
    while ctx.memory(gpu).used_bytes > idle.used_bytes and time.monotonic() < until:
        time.sleep(0.01)


def judge(reading: Reading, facts: Facts, limits: Limits) -> Iterator[Judgement]:
    if reading.misspelt is None:
        yield GPU_NOT_SEEN.found(seen=reading.seen, given=len(reading.given))
        return
    kind = ABORTS if facts.variables.get("TF_GPU_ALLOCATOR") == RIGHT else NO_MEMORY_POOLS
    for pci_bus_id, pools in zip(reading.given, reading.pools, strict=True):
        if pools is False:
            yield kind.found(pci_bus_id=pci_bus_id)
    for value, trial in ((MISSPELT, reading.misspelt), (RIGHT, reading.right)):
        if trial is None:
            continue
        if trial.failed or trial.kernel is None:
            error = trial.failed.brief if trial.failed else "no result"
            yield FAILED.found(value=value, tensor_mib=TENSOR_BYTES / MIB, error=error)
            continue
        first = taken(trial.before, trial.first)
        at_once = first >= LIMIT_BYTES - SLACK_BYTES
        if value == RIGHT and at_once:
            yield IGNORED.found(taken_mib=first / MIB)
        elif value == RIGHT and not trial.named:
            yield NOT_NAMED.found()
        elif value == MISSPELT and (trial.named or not at_once):
            yield TYPO_NOTICED.found(taken_mib=first / MIB, limit_mib=LIMIT_BYTES / MIB)
        yield from judge_kernel(trial.kernel, reading.given[0])


_PCI = "0000:3b:00.0"
_DEAD = Raised("InternalError", "CUDA error")


def _trial(
    first_mib: int,
    *,
    named: bool,
    failed: Raised | None = None,
    kernel: Kernel = Kernel("GPU:0", _PCI, True),  # noqa: B008  # immutable
) -> Trial:
    before, first, grown = (MemoryUse((450 + mib) * MIB, None) for mib in (0, first_mib, max(first_mib, 64)))
    return Trial(named, before, first, grown, failed, None if failed else kernel)


_TYPO, _ASYNC = _trial(128, named=False), _trial(0, named=True)


def _case(
    name: str,
    *expect: str,
    misspelt: Trial = _TYPO,
    right: Trial | None = _ASYNC,
    pools: bool | None = True,
    variables: dict[str, str] | None = None,
) -> Case:
    facts = hostfacts.example(environment=EnvironmentFacts(variables or {}))
    return Case(name, expect, Reading((_PCI,), 1, (pools,), misspelt, right), facts, verified=(_PCI,))


CASES = (
    _case("one honoured, one ignored"),
    _case("the driver did not tell", pools=None),
    _case("no memory pools", NO_MEMORY_POOLS.name, pools=False, right=None),
    _case(
        "no memory pools and yet asked for",
        ABORTS.name,
        pools=False,
        right=None,
        variables={"TF_GPU_ALLOCATOR": RIGHT},
    ),
    _case("no effect", IGNORED.name, right=_TYPO),
    _case("not in the log", NOT_NAMED.name, right=_trial(0, named=False)),
    _case("a typo that is understood", TYPO_NOTICED.name, misspelt=_ASYNC),
    _case("dead", FAILED.name, right=_trial(0, named=True, failed=_DEAD)),
    _case("another GPU", OTHER_GPU.name, right=_trial(0, named=True, kernel=Kernel("GPU:0", "0000:af:00.0", True))),
    _case("a wrong product", WRONG_RESULT.name, right=_trial(0, named=True, kernel=Kernel("GPU:0", _PCI, False))),
    Case("TensorFlow without GPU", (GPU_NOT_SEEN.name,), Reading((_PCI,), 0)),
)
