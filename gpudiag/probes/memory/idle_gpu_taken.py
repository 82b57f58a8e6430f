"""A GPU that a program sees and does not use loses a CUDA context's memory to it, but no pool; a hidden one nothing.

What it does
    Opens a `tf.compat.v1.Session` that sees the first GPU only, copies a tensor to it, and computes and checks a matrix
    product. It then opens a session that sees all GPUs and does the same on the first. NVML tells what the other GPUs
    lost, while they were hidden and when they were visible. `TF_PER_DEVICE_MEMORY_LIMIT_MB=256` keeps the pool small.
Why it matters
    TensorFlow makes a context on every visible GPU, a few hundred MiB each, when it makes its devices. On a shared
    machine that is memory which nobody uses and another program lacks.
What a failure means
    `hidden_taken`: a GPU that was hidden from the session lost memory all the same.
    `pool_taken`: a visible GPU that was not used lost a pool of memory beside the context.
    `much_taken`: a visible GPU that was not used lost more than 1 GiB for its context.
    `gpu_not_seen`, `other_gpu`, `wrong_result`: TensorFlow does not use the GPUs that it was given, or not correctly.
What to do
    Hide what the program does not use: `export CUDA_VISIBLE_DEVICES=GPU-...` (a UUID from nvidia-smi -L), or right
    after the import `tf.config.set_visible_devices(gpus[0], "GPU")`, in TensorFlow 1 code
    `tf.compat.v1.GPUOptions(visible_device_list="0")`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpudiag import probe
from gpudiag.hostfacts import Facts
from gpudiag.model import Limits, Severity
from gpudiag.placement import created_devices
from gpudiag.probe import Case, Context, Judgement, Kind, MemoryUse, Needs, Scope
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
    needs=Needs(gpus=2, free_bytes=256 * MIB),
    scope=Scope.ALL_GPUS,
    exclusive=True,
    # With growth, or without a pool, nothing would tell a GPU's pool from a few small tensors.
    env={"TF_PER_DEVICE_MEMORY_LIMIT_MB": "256", "TF_FORCE_GPU_ALLOW_GROWTH": None, "TF_GPU_ALLOCATOR": None},
)

HIDDEN_TAKEN = Kind(
    "hidden_taken",
    Severity.WARNING,
    "{pci_bus_id} was hidden from the session and lost {taken_mib:.0f} MiB",
    "Hide it from CUDA altogether: export CUDA_VISIBLE_DEVICES=GPU-... (see nvidia-smi -L)",
)
POOL_TAKEN = Kind(
    "pool_taken",
    Severity.WARNING,
    "{pci_bus_id} was visible and not used, and lost {taken_mib:.0f} MiB when {used} was used",
    "Hide it from the program: export CUDA_VISIBLE_DEVICES=GPU-... (see nvidia-smi -L)",
)
MUCH_TAKEN = Kind(
    "much_taken",
    Severity.WARNING,
    "{pci_bus_id} was visible and not used, and lost {taken_mib:.0f} MiB when TensorFlow made its device",
    "Hide it from the program, and let CUDA load kernels when they are used: export CUDA_MODULE_LOADING=LAZY",
)

CONTEXT_BYTES = 1 << 30


class Idle(Record):
    """A GPU that was given no work."""

    pci_bus_id: str
    start: MemoryUse
    """Before the first session."""
    hidden: MemoryUse
    """After the session that did not see it."""
    made: MemoryUse
    """After the session that sees it was opened."""
    unused: MemoryUse
    """After that session worked on the first GPU."""


class Reading(probe.Reading):
    """What the GPUs without work lost."""

    given: tuple[str, ...]
    """PCI bus ids of the GPUs that the probe was given."""
    seen: int
    """GPUs that TensorFlow lists."""
    idle: tuple[Idle, ...] = ()
    kernel: Kernel | None = None
    """On the first GPU; None where TensorFlow lists too few."""

    def figure(self) -> str:
        if self.kernel is None:
            return f"TensorFlow lists {self.seen} of {len(self.given)} GPUs"
        hidden, visible = (max(rises) / MIB for rises in zip(*map(_rises, self.idle), strict=True))
        return f"unused {visible:.0f} MiB, hidden {hidden:.0f} MiB"


def measure(ctx: Context) -> Reading:
    given = tuple(gpu.pci_bus_id for gpu in ctx.gpus)
    seen = len(ctx.tf.config.list_physical_devices("GPU"))
    if seen < len(given):
        return Reading(given, seen)
    start = _idle(ctx)
    _, kernel = _use_first(ctx, "0")
    hidden = _idle(ctx)
    made, again = _use_first(ctx, "")
    unused = _idle(ctx)
    for uses in zip(start, hidden, made, unused, strict=True):
        refuse_disturbance(*uses)
    idle = tuple(map(Idle, given[1:], start, hidden, made, unused))
    return Reading(given, seen, idle, Kernel(kernel.device, kernel.pci_bus_id, kernel.correct and again.correct))


def _idle(ctx: Context) -> list[MemoryUse]:
    return [ctx.memory(gpu) for gpu in ctx.gpus[1:]]


def _use_first(ctx: Context, visible: str) -> tuple[list[MemoryUse], Kernel]:
    """Work on ``GPU:0`` in a session that sees ``visible``; return the others' use before the work, and the product."""
    tf, v1 = ctx.tf, ctx.tf.compat.v1
    with tf.Graph().as_default(), tf.device("/GPU:0"):
        matrix = v1.placeholder(tf.float32, [2, 2])
        product = tf.matmul(tf.identity(matrix), matrix)
        with ctx.placements() as log:
            session: Any = v1.Session(config=v1.ConfigProto(gpu_options=v1.GPUOptions(visible_device_list=visible)))
        with session:
            made = _idle(ctx)
            correct = is_square(session.run(product, {matrix: MATRIX}))
    return made, Kernel("GPU:0", created_devices(log.lines).get("GPU:0", ""), correct)


def _rises(idle: Idle) -> tuple[int, int]:
    """Return what a GPU lost while hidden and, after that, while visible."""
    return taken(idle.start, idle.hidden), taken(idle.hidden, idle.unused)


def judge(reading: Reading, facts: Facts, limits: Limits) -> Iterator[Judgement]:
    if reading.kernel is None:
        yield GPU_NOT_SEEN.found(seen=reading.seen, given=len(reading.given))
        return
    for one in reading.idle:
        hidden, context, pool = (
            taken(*uses) for uses in ((one.start, one.hidden), (one.hidden, one.made), (one.made, one.unused))
        )
        if hidden > SLACK_BYTES:
            yield HIDDEN_TAKEN.found(pci_bus_id=one.pci_bus_id, taken_mib=hidden / MIB)
        if context > CONTEXT_BYTES:
            yield MUCH_TAKEN.found(pci_bus_id=one.pci_bus_id, taken_mib=context / MIB)
        if pool > SLACK_BYTES:
            yield POOL_TAKEN.found(pci_bus_id=one.pci_bus_id, taken_mib=pool / MIB, used=reading.given[0])
    yield from judge_kernel(reading.kernel, reading.given[0])


_GIVEN = ("0000:3b:00.0", "0000:af:00.0")


def _case(
    name: str,
    *expect: str,
    mib: tuple[int, int, int] = (0, 450, 0),
    kernel: Kernel = Kernel("GPU:0", _GIVEN[0], True),  # noqa: B008  # immutable
) -> Case:
    uses = (MemoryUse(sum(mib[:number]) * MIB, None) for number in range(4))
    verified = _GIVEN[:1] if kernel.correct and kernel.pci_bus_id == _GIVEN[0] else ()
    return Case(name, expect, Reading(_GIVEN, 2, (Idle(_GIVEN[1], *uses),), kernel), verified=verified)


CASES = (
    _case("a context"),
    _case("nothing at all", mib=(0, 0, 0)),
    _case("a context although hidden", HIDDEN_TAKEN.name, mib=(450, 0, 0)),
    _case("a pool too", POOL_TAKEN.name, mib=(0, 450, 240)),
    _case("a large context", MUCH_TAKEN.name, mib=(0, 2100, 0)),
    _case("another GPU", OTHER_GPU.name, kernel=Kernel("GPU:0", _GIVEN[1], True)),
    _case("a wrong product", WRONG_RESULT.name, kernel=Kernel("GPU:0", _GIVEN[0], False)),
    Case("TensorFlow lists one of two", (GPU_NOT_SEEN.name,), Reading(_GIVEN, 1)),
)
