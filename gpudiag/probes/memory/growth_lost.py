"""Logical devices anywhere, even on the CPU, end memory growth for every GPU without a word.

What it does
    Calls `tf.config.experimental.set_memory_growth(gpu, True)`, splits the CPU into two logical devices, and puts a
    small tensor on the GPU. With two GPUs it also sets growth for all, gives the first GPU a logical device, and puts
    the tensor on the second; each in a process of its own. NVML tells whether the tensor took about 2 MiB
    or all that TensorFlow was let (512 MiB); `get_memory_growth` is asked too. A matrix product is checked on each.
Why it matters
    Nothing tells the program: `get_memory_growth` goes on to say True, and TensorFlow takes nearly all memory at its
    first tensor. Code that splits a CPU for a test does this to every GPU.
What a failure means
    `kept`: growth held here. Releases differ in this; what is said above is not true of yours.
    `admitted`: growth was lost and `get_memory_growth` no longer claims it.
    `gpu_not_seen`, `other_gpu`, `wrong_result`: TensorFlow does not use the GPU that it was given, or not correctly.
What to do
    `export TF_FORCE_GPU_ALLOW_GROWTH=true`: it is read below the place where growth is lost, and holds beside logical
    devices. Or give every GPU logical devices with limits: `tf.config.set_logical_device_configuration(gpu,
    [tf.config.LogicalDeviceConfiguration(memory_limit=4096)])`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from gpudiag import probe
from gpudiag.hostfacts import Facts
from gpudiag.model import Limits, Severity
from gpudiag.placement import created_devices, short_device
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
    needs=Needs(gpus=1, free_bytes=1536 * MIB),
    scope=Scope.ALL_GPUS,
    exclusive=True,
    # TensorFlow takes all that is free once growth is lost; the first makes it stop at 512 MiB. Forced growth is not
    # lost (memory.growth_forced tells), and other allocators know no growth (memory.fraction tells).
    env={"TF_PER_DEVICE_MEMORY_LIMIT_MB": "512", "TF_FORCE_GPU_ALLOW_GROWTH": None, "TF_GPU_ALLOCATOR": None},
)

KEPT = Kind(
    "kept",
    Severity.NOTE,
    "growth held beside {split}: the first tensor took {taken_mib:.0f} MiB of the {limit_mib} MiB it was let",
    "Other releases of TensorFlow lose it; to have it everywhere: export TF_FORCE_GPU_ALLOW_GROWTH=true",
)
ADMITTED = Kind(
    "admitted",
    Severity.NOTE,
    "growth is lost beside {split}, and get_memory_growth says {getter}; TensorFlow 2.21 says True",
    "Other releases of TensorFlow do not tell; to have growth everywhere: export TF_FORCE_GPU_ALLOW_GROWTH=true",
)

LIMIT_MIB = 512
CPU_SPLIT = "a CPU split in two"
GPU_LIMITED = "a logical device on another GPU"


class Loss(Record):
    """A GPU with growth set, beside logical devices."""

    split: str
    """What was made of logical devices, in words."""
    on: str
    """PCI bus id of the GPU that the tensor should be on."""
    getter: bool | None
    """What ``get_memory_growth`` says of this GPU afterwards."""
    before: MemoryUse
    """After the CUDA context was made, before the first tensor."""
    first: MemoryUse
    """After a tensor of 16 bytes."""
    kernel: Kernel


class Reading(probe.Reading):
    """What was taken although growth was set."""

    given: tuple[str, ...]
    """PCI bus ids of the GPUs that the probe was given."""
    seen: int
    """GPUs that TensorFlow lists."""
    losses: tuple[Loss, ...] = ()
    """The second needs a second GPU."""

    def figure(self) -> str:
        if not self.losses:
            return f"TensorFlow lists {self.seen} of {len(self.given)} GPUs"
        rises = (f"{taken(loss.before, loss.first) / MIB:.0f}" for loss in self.losses)
        return f"growth set, yet {' and '.join(rises)} MiB at once"


class Part(Record):
    """What one process saw: TensorFlow is configured once in a process."""

    seen: int
    loss: Loss | None


def measure(ctx: Context) -> Reading:
    given = tuple(gpu.pci_bus_id for gpu in ctx.gpus)
    splits = [_beside_a_split_cpu, *([_beside_a_limited_gpu] if len(given) > 1 else [])]
    parts = [ctx.apart(partial(split, ctx), Part, {}) for split in splits]
    return Reading(given, min(part.seen for part in parts), tuple(part.loss for part in parts if part.loss))


def _beside_a_split_cpu(ctx: Context) -> Part:
    config = ctx.tf.config
    devices = config.list_physical_devices("GPU")
    if len(devices) < len(ctx.gpus):
        return Part(len(devices), None)
    config.set_visible_devices(devices[0], "GPU")
    config.experimental.set_memory_growth(devices[0], True)
    config.set_logical_device_configuration(
        config.list_physical_devices("CPU")[0], [config.LogicalDeviceConfiguration()] * 2
    )
    return Part(len(devices), _take(ctx, 0, CPU_SPLIT))


def _beside_a_limited_gpu(ctx: Context) -> Part:
    config = ctx.tf.config
    devices = config.list_physical_devices("GPU")
    if len(devices) < len(ctx.gpus):
        return Part(len(devices), None)
    for device in devices:
        config.experimental.set_memory_growth(device, True)
    config.set_logical_device_configuration(devices[0], [config.LogicalDeviceConfiguration(memory_limit=64)])
    return Part(len(devices), _take(ctx, 1, GPU_LIMITED))


def _take(ctx: Context, number: int, split: str) -> Loss:
    """Let TensorFlow make its devices as configured, and put a tensor on ``GPU:number``."""
    tf, gpu = ctx.tf, ctx.gpus[number]
    tf.config.set_soft_device_placement(False)
    with ctx.placements() as log:
        tf.config.list_logical_devices("GPU")
    before = ctx.memory(gpu)
    with tf.device(f"/GPU:{number}"):
        matrix = tf.identity(tf.constant(MATRIX))
        first = ctx.memory(gpu)
        # Not before: the matrix library takes memory of its own beside the pool.
        product = tf.matmul(matrix, matrix)
    refuse_disturbance(before, first)
    getter = tf.config.experimental.get_memory_growth(tf.config.list_physical_devices("GPU")[number])
    device = short_device(product.device)
    kernel = Kernel(device, created_devices(log.lines).get(device, ""), is_square(product))
    return Loss(split, gpu.pci_bus_id, getter, before, first, kernel)


def judge(reading: Reading, facts: Facts, limits: Limits) -> Iterator[Judgement]:
    if reading.seen < len(reading.given):
        yield GPU_NOT_SEEN.found(seen=reading.seen, given=len(reading.given))
        return
    for loss in reading.losses:
        rise = taken(loss.before, loss.first)
        if rise <= SLACK_BYTES:
            yield KEPT.found(split=loss.split, taken_mib=rise / MIB, limit_mib=LIMIT_MIB)
        elif loss.getter is not True:
            yield ADMITTED.found(split=loss.split, getter=str(loss.getter))
        yield from judge_kernel(loss.kernel, loss.on)


_GIVEN = ("0000:3b:00.0", "0000:af:00.0")


def _case(
    name: str,
    *expect: str,
    mib: int = 496,
    getter: bool | None = True,
    on: tuple[str, str] = _GIVEN,
    correct: bool = True,
    verified: tuple[str, ...] = _GIVEN,
) -> Case:
    before, first = MemoryUse(450 * MIB, None), MemoryUse((450 + mib) * MIB, None)
    losses = (
        Loss(CPU_SPLIT, _GIVEN[0], getter, before, first, Kernel("GPU:0", on[0], correct)),
        Loss(GPU_LIMITED, _GIVEN[1], getter, before, first, Kernel("GPU:1", on[1], correct)),
    )
    return Case(name, expect, Reading(_GIVEN, 2, losses), verified=verified)


_LOST = _case("lost on both")

CASES = (
    _LOST,
    Case("one GPU", (), Reading(_GIVEN[:1], 1, _LOST.reading.losses[:1]), verified=_GIVEN[:1]),
    _case("kept", KEPT.name, KEPT.name, mib=2),
    _case("lost and admitted", ADMITTED.name, ADMITTED.name, getter=None),
    _case("another GPU", OTHER_GPU.name, on=(_GIVEN[0], _GIVEN[0]), verified=_GIVEN[:1]),
    _case("wrong products", WRONG_RESULT.name, WRONG_RESULT.name, correct=False, verified=()),
    Case("TensorFlow lists one of two", (GPU_NOT_SEEN.name,), Reading(_GIVEN, 1)),
)
