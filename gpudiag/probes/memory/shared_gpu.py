"""On a shared GPU TensorFlow by default counts on what is free; a fraction counts on all, whoever has it.

What it does
    A second process takes 256 MiB of the first two GPUs. Then this one opens a `tf.compat.v1.Session` with default
    options on the first GPU, and one with `per_process_gpu_memory_fraction=1` on the second. The most that TensorFlow
    will take, in its `Created device` line, is compared with what NVML shows as free. A matrix product is computed and
    checked on both; under a cap that keeps TensorFlow from taking more than 128 MiB. With one GPU only the default is
    shown.
Why it matters
    By default the second program that starts on a GPU gets the rest, less a reserve of up to 1800 MiB: too little,
    and it starts all the same. With a fraction (or `memory_limit`) it is promised memory that others hold; it takes
    what it can get, and fails later.
What a failure means
    `more_than_free`: by default TensorFlow counts on memory that another process holds.
    `less_than_free`: by default TensorFlow leaves more than its reserve unused.
    `fraction_of_free`: the fraction did not count on more than is free; what this probe says does not hold here.
    `exclusive`: this process could not use a GPU that another uses, because its compute mode forbids that.
    `not_shareable`: the same, and the compute mode allows it.
    `not_held`: the other process could not take its memory, or took it elsewhere.
    `gpu_not_seen`, `other_gpu`, `wrong_result`: TensorFlow does not use the GPUs that it was given, or not correctly.
What to do
    Give each program its own part: `tf.config.set_logical_device_configuration(gpu,
    [tf.config.LogicalDeviceConfiguration(memory_limit=4096)])`, or in a session
    `tf.compat.v1.GPUOptions(per_process_gpu_memory_fraction=0.3)`: the parts, and some 500 MiB for each process,
    together below the total.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from gpudiag import hostfacts, probe
from gpudiag.hostfacts import Facts, NvmlFacts
from gpudiag.model import Gpu, Limits, Severity
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
    attempt_context,
    ceilings_mib,
    is_partitioned,
    is_square,
    judge_kernel,
    taken,
)
from gpudiag.record import Record

HELD_BYTES = 256 * MIB

PROBE = probe.Probe(
    needs=Needs(gpus=1, free_bytes=2 * HELD_BYTES),
    scope=Scope.ALL_GPUS,
    exclusive=True,
    # No single allocation above 128 MiB: both sessions count on nearly the whole GPU, and would take it. What the other
    # process takes is two of that size. Growth and other allocators would only change when memory is taken.
    env={"TF_PER_DEVICE_MEMORY_LIMIT_MB": "128", "TF_FORCE_GPU_ALLOW_GROWTH": None, "TF_GPU_ALLOCATOR": None},
)

MORE_THAN_FREE = Kind(
    "more_than_free",
    Severity.FAIL,
    "by default TensorFlow counts on {ceiling_mib} MiB of {device}, {free_mib:.0f} MiB are free",
    "Set a limit: tf.config.set_logical_device_configuration(gpu, "
    "[tf.config.LogicalDeviceConfiguration(memory_limit=4096)])",
)
LESS_THAN_FREE = Kind(
    "less_than_free",
    Severity.WARNING,
    "by default TensorFlow counts on {ceiling_mib} MiB of {device}, {free_mib:.0f} MiB are free; "
    "its reserve is {reserve_mib:.0f} MiB at most",
    "To have the rest: tf.config.set_logical_device_configuration(gpu, "
    "[tf.config.LogicalDeviceConfiguration(memory_limit={free_mib:.0f})])",
)
FRACTION_OF_FREE = Kind(
    "fraction_of_free",
    Severity.NOTE,
    "per_process_gpu_memory_fraction=1 counts on {ceiling_mib} MiB of {device}, {free_mib:.0f} MiB are free",
    "Go by the `Created device` line of the log for what a fraction stands for here.",
)
EXCLUSIVE = Kind(
    "exclusive",
    Severity.NOTE,
    "the compute mode of {pci_bus_id} is {mode}: a second process could not use it",
    "If programs are to share this GPU: sudo nvidia-smi -i {pci_bus_id} -c DEFAULT",
)
NOT_SHAREABLE = Kind(
    "not_shareable",
    Severity.FAIL,
    "{device}, which another process uses, could not be used: {error}",
    "Let one program at a time use this GPU, and look for errors in `dmesg | grep -e NVRM -e Xid`.",
)
NOT_HELD = Kind(
    "not_held",
    Severity.FAIL,
    "the other process should have taken {held_mib:.0f} MiB of {pci_bus_id}, {what}",
    "Look in nvidia-smi for what else uses this GPU, and run `gpudiag check memory.limit`.",
)

# MinSystemMemory of TensorFlow 2.18-2.21: 1800 MiB from compute capability 9.0, less below.
RESERVE_BYTES = 1800 * MIB


class Shared(Record):
    """One GPU with two processes on it."""

    idle: MemoryUse
    """With the CUDA context of the other process, before it took anything."""
    held: MemoryUse
    """With its memory taken, and nothing of this process on the device."""
    ours: MemoryUse
    """With the CUDA context of this process."""
    ceiling_mib: int
    """The most that TensorFlow will take, by its ``Created device`` line; 0 where there was none."""
    failed: Raised | None
    """What making the session or computing in it raised."""
    kernel: Kernel | None
    """None where that failed."""


class Reading(probe.Reading):
    """What TensorFlow counts on."""

    given: tuple[str, ...]
    """PCI bus ids of the GPUs that the probe was given, in the order of ``CUDA_VISIBLE_DEVICES``; two are used."""
    total_bytes: tuple[int, ...]
    """Of each, by NVML."""
    seen: int
    """GPUs that TensorFlow lists."""
    holder: Raised | None = None
    """What taking its memory raised in the other process."""
    default: Shared | None = None
    """The first GPU, with default options; None where TensorFlow lists too few GPUs or nothing was held."""
    fraction: Shared | None = None
    """The second GPU, with a fraction of 1; None also where there is no second."""

    def figure(self) -> str:
        if self.seen < len(self.given):
            return f"TensorFlow lists {self.seen} of {len(self.given)} GPUs"
        if self.default is None:
            return "no memory held by another process"
        free = _free(self.default, self.total_bytes[0]) / MIB
        fraction = f"by fraction {self.fraction.ceiling_mib}" if self.fraction else "fraction: needs 2 GPUs"
        return f"{self.default.ceiling_mib} of {free:.0f} MiB free, {fraction}"


def _free(shared: Shared, total_bytes: int) -> int:
    return total_bytes - shared.ours.used_bytes


def peer(ctx: Context) -> None:
    tf = ctx.tf
    logical: list[Any] = []

    def make() -> None:
        physical = tf.config.list_physical_devices("GPU")[:2]
        tf.config.set_visible_devices(physical, "GPU")
        for device in physical:
            limit = tf.config.LogicalDeviceConfiguration(memory_limit=HELD_BYTES // 2 // MIB)
            tf.config.set_logical_device_configuration(device, [limit] * 2)
        logical.extend(tf.config.list_logical_devices("GPU"))

    def take() -> None:
        for device in logical:
            with tf.device(device.name):
                tf.identity(tf.constant(MATRIX))  # takes the whole limit

    failed = ctx.attempt(make)
    ctx.peer.meet("made")
    ctx.peer.meet("idle")
    failed = failed or ctx.attempt(take)
    ctx.peer.meet("held", [failed.type, failed.message] if failed else None)
    ctx.peer.meet("end")


def measure(ctx: Context) -> Reading:
    tf = ctx.tf
    given = tuple(gpu.pci_bus_id for gpu in ctx.gpus)
    totals = tuple(gpu.memory_total_bytes for gpu in ctx.gpus)
    seen = len(tf.config.list_physical_devices("GPU"))
    used = ctx.gpus[:2]
    ctx.peer.meet("made")
    idle = [ctx.memory(gpu) for gpu in used]
    ctx.peer.meet("idle")
    failed = ctx.peer.meet("held")
    if seen < len(given) or failed:
        ctx.peer.meet("end")
        return Reading(given, totals, seen, Raised(*failed) if failed else None)
    held = [ctx.memory(gpu) for gpu in used]
    options = tf.compat.v1.GPUOptions
    sessions = (
        options(visible_device_list="0"),
        # A second session may add GPUs to those of the first, with options of their own.
        options(visible_device_list="0,1", per_process_gpu_memory_fraction=1.0),
    )
    shared: list[Shared] = []
    for number, gpu in enumerate(used):
        shared.append(Shared(idle[number], held[number], *_compute(ctx, gpu, number, sessions[number])))
        if shared[-1].failed:
            break  # TensorFlow may hang at the next call
    ctx.peer.meet("end")
    return Reading(given, totals, seen, None, *shared)


def _compute(ctx: Context, gpu: Gpu, number: int, options: Any) -> tuple[MemoryUse, int, Raised | None, Kernel | None]:
    """Compute on ``/GPU:number`` in a session with ``options``; return the last four fields of :class:`Shared`."""
    tf, v1 = ctx.tf, ctx.tf.compat.v1
    name = f"GPU:{number}"
    uses, correct = [], []

    def compute() -> None:
        with tf.Graph().as_default(), tf.device(f"/{name}"):
            matrix = v1.placeholder(tf.float32, [2, 2])
            product = tf.matmul(matrix, matrix)
            with v1.Session(config=v1.ConfigProto(gpu_options=options)) as session:
                uses.append(ctx.memory(gpu))
                correct.append(is_square(session.run(product, {matrix: MATRIX})))

    with ctx.placements() as log:
        failed = attempt_context(ctx, compute)
    kernel = Kernel(name, created_devices(log.lines).get(name, ""), correct[0]) if correct else None
    ours = uses[0] if uses else ctx.memory(gpu)
    return ours, ceilings_mib(log.lines).get(name, 0), failed, kernel


def judge(reading: Reading, facts: Facts, limits: Limits) -> Iterator[Judgement]:
    if reading.seen < len(reading.given):
        yield GPU_NOT_SEEN.found(seen=reading.seen, given=len(reading.given))
        return
    held_mib = HELD_BYTES / MIB
    if reading.holder:
        yield NOT_HELD.found(held_mib=held_mib, pci_bus_id=reading.given[0], what=f"it met {reading.holder.brief}")
    for number, shared in enumerate((reading.default, reading.fraction)):
        if shared is None:
            continue
        device, pci_bus_id = f"GPU:{number}", reading.given[number]
        rose = taken(shared.idle, shared.held)
        if rose < HELD_BYTES - SLACK_BYTES:
            yield NOT_HELD.found(
                held_mib=held_mib, pci_bus_id=pci_bus_id, what=f"whose use rose by {rose / MIB:.0f} MiB"
            )
            continue
        mode = next((one.compute_mode for one in facts.nvml_devices if one.pci_bus_id == pci_bus_id), None)
        if shared.failed and mode and mode != "default":
            yield EXCLUSIVE.found(pci_bus_id=pci_bus_id, mode=mode)
        elif shared.failed:
            yield NOT_SHAREABLE.found(device=device, error=shared.failed.brief)
        if shared.kernel is None:
            continue
        if not is_partitioned(facts, pci_bus_id):  # what is free of the whole GPU says nothing of an instance
            yield from _judge_ceiling(shared, device, _free(shared, reading.total_bytes[number]))
        yield from judge_kernel(shared.kernel, pci_bus_id)


def _judge_ceiling(shared: Shared, device: str, free: int) -> Iterator[Judgement]:
    ceiling = shared.ceiling_mib * MIB
    figures: dict[str, str | float] = {"device": device, "ceiling_mib": shared.ceiling_mib, "free_mib": free / MIB}
    if device != "GPU:0":  # the one with a fraction
        if ceiling < free + HELD_BYTES // 2:
            yield FRACTION_OF_FREE.found(**figures)
    elif ceiling > free + SLACK_BYTES:
        yield MORE_THAN_FREE.found(**figures)
    elif ceiling < free - RESERVE_BYTES - SLACK_BYTES:
        yield LESS_THAN_FREE.found(**figures, reserve_mib=RESERVE_BYTES / MIB)


_FIRST, _SECOND = "0000:3b:00.0", "0000:af:00.0"
_BUSY = Raised("InternalError", "CUDA_ERROR_DEVICE_UNAVAILABLE: CUDA-capable device(s) is/are busy or unavailable")


def _shared(
    number: int,
    ceiling_mib: int,
    *,
    held_mib: int = 256,
    failed: Raised | None = None,
    pci_bus_id: str = "",
    correct: bool = True,
) -> Shared:
    idle, held, ours = (MemoryUse(mib * MIB, None) for mib in (410, 410 + held_mib, 810 + held_mib))
    kernel = None if failed else Kernel(f"GPU:{number}", pci_bus_id or (_FIRST, _SECOND)[number], correct)
    return Shared(idle, held, ours, ceiling_mib, failed, kernel)


def _case(
    name: str,
    *expect: str,
    default: Shared = _shared(0, 13782),  # noqa: B008  # immutable
    fraction: Shared | None = _shared(1, 16384),  # noqa: B008  # immutable
    verified: tuple[str, ...] = (_FIRST, _SECOND),
    mode: str = "default",
    mig: str = "disabled",
) -> Case:
    reading = Reading((_FIRST, _SECOND), (16384 * MIB,) * 2, 2, None, default, fraction)
    gpu = msgspec.structs.replace(hostfacts.example_gpu(), pci_bus_id=_FIRST, compute_mode=mode, mig_mode=mig)
    facts = hostfacts.example(nvml=NvmlFacts(None, "535.104.05", "12.2", (gpu,)))
    return Case(name, expect, reading, facts, verified=verified)


CASES = (
    _case("two GPUs"),
    _case("one GPU", fraction=None, verified=(_FIRST,)),
    _case("counts on the memory of the other", MORE_THAN_FREE.name, default=_shared(0, 15900)),
    _case("counts on next to nothing", LESS_THAN_FREE.name, default=_shared(0, 1000)),
    _case("an instance of a GPU", default=_shared(0, 5000), fraction=None, verified=(_FIRST,), mig="enabled"),
    _case("a fraction of what is free", FRACTION_OF_FREE.name, fraction=_shared(1, 15318)),
    _case("a busy GPU", NOT_SHAREABLE.name, default=_shared(0, 0, failed=_BUSY), fraction=None, verified=()),
    _case(
        "an exclusive GPU",
        EXCLUSIVE.name,
        default=_shared(0, 0, failed=_BUSY),
        fraction=None,
        verified=(),
        mode="exclusive_process",
    ),
    _case("memory held elsewhere", NOT_HELD.name, default=_shared(0, 13782, held_mib=100), verified=(_SECOND,)),
    _case("another GPU", OTHER_GPU.name, fraction=_shared(1, 16384, pci_bus_id=_FIRST), verified=(_FIRST,)),
    _case("a wrong product", WRONG_RESULT.name, fraction=_shared(1, 16384, correct=False), verified=(_FIRST,)),
    Case("nothing held", (NOT_HELD.name,), Reading((_FIRST,), (16384 * MIB,), 1, _BUSY)),
    Case("TensorFlow without GPU", (GPU_NOT_SEEN.name,), Reading((_FIRST,), (16384 * MIB,), 0)),
)
