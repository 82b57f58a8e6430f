"""By default TensorFlow takes nearly all free memory of a GPU, not when it makes the device but at the first tensor.

What it does
    Lets TensorFlow make its devices with default options and compares the ceiling in each `Created device ... with N MB
    memory` line with the memory that NVML says is free then, less the reserve that TensorFlow leaves (225 MiB where
    less than 2 GiB are free; otherwise, by compute capability: 500 MiB up to 6.x, 1050 for 7.x, 1536 for 8.x, 1800 from
    9.0 on). Then it puts a tensor of 16 bytes on the first GPU. `TF_PER_DEVICE_MEMORY_LIMIT_MB=512` keeps TensorFlow,
    which tries again with 10 % less each time it is refused, from taking more than 512 MiB.
Why it matters
    The ceiling is what a program can use, not what is in use: between the two moments another program may take it. From
    the first tensor on there is no room for another program, whatever the first one needs.
What a failure means
    `other_ceiling`: the ceiling is not the free memory less the reserve: it was changed, or releases differ.
    `not_all`: the first tensor took less than TensorFlow was let.
    `limit_ignored`: it took more than `TF_PER_DEVICE_MEMORY_LIMIT_MB` lets it.
    `grows`: `TF_FORCE_GPU_ALLOW_GROWTH` in your environment makes the pool grow instead.
    `gpu_not_seen`, `other_gpu`, `wrong_result`: TensorFlow does not use the GPUs that it was given, or not correctly.
What to do
    To take memory as it is needed: `tf.config.experimental.set_memory_growth(gpu, True)` for every GPU, or
    `tf.compat.v1.GPUOptions(allow_growth=True)`. To take a fixed share:
    `tf.config.set_logical_device_configuration(gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=4096)])`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudiag import hostfacts, probe
from gpudiag.hostfacts import EnvironmentFacts, Facts
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
    ceilings_mib,
    is_partitioned,
    is_square,
    judge_kernel,
    partitioned,
    refuse_disturbance,
    taken,
)
from gpudiag.record import Record

PROBE = probe.Probe(
    needs=Needs(gpus=1),
    scope=Scope.ALL_GPUS,
    exclusive=True,
    # The default is shown with the first; the second would replace it (memory.fraction tells).
    env={"TF_PER_DEVICE_MEMORY_LIMIT_MB": "512", "TF_GPU_ALLOCATOR": None},
)

OTHER_CEILING = Kind(
    "other_ceiling",
    Severity.WARNING,
    "TensorFlow may take {ceiling_mib} MiB of {pci_bus_id}; {free_mib:.0f} MiB are free, less the reserve "
    "{expected_mib:.0f} MiB",
    "Read N in TensorFlow's line `Created device ... with N MB memory` for what a program can have.",
)
NOT_ALL = Kind(
    "not_all",
    Severity.WARNING,
    "the first tensor took {taken_mib:.0f} MiB, expected at least {expected_mib:.0f} MiB; making the device took "
    "{made_mib:.0f} MiB",
    "Look in nvidia-smi for what else fills this GPU. If it is empty, look for code that sets memory growth.",
)
LIMIT_IGNORED = Kind(
    "limit_ignored",
    Severity.WARNING,
    "TF_PER_DEVICE_MEMORY_LIMIT_MB={limit_mib} did not hold: the first tensor took {taken_mib:.0f} MiB",
    "Limit it in the program: tf.config.set_logical_device_configuration(gpu, "
    "[tf.config.LogicalDeviceConfiguration(memory_limit=4096)])",
)
GROWS = Kind(
    "grows",
    Severity.NOTE,
    "TF_FORCE_GPU_ALLOW_GROWTH=true: the first tensor took {taken_mib:.0f} MiB, by default it takes all",
    "To have memory taken at once: unset TF_FORCE_GPU_ALLOW_GROWTH",
)

LIMIT_MIB = 512
# TensorFlow asks for 10 % less each time it is refused, so it can end 10 % below what it is let.
BACKED_OFF = 0.9
# NVML and CUDA count what is free a little differently; the reserves lie 264 MiB apart and more.
TOLERANCE_BYTES = 128 * MIB
_CAPABILITY = re.compile(r"device:(?P<device>GPU:\d+) .{0,300}compute capability: (?P<major>\d+)\.\d+")


class Ceiling(Record):
    """What TensorFlow says that it may take of a GPU, and what is free there."""

    pci_bus_id: str
    """By TensorFlow's own description."""
    ceiling_mib: int
    major: int
    """Of the compute capability; 0 where TensorFlow named none."""
    free_bytes: int
    """By NVML, after the device was made; 0 where the GPU is none of those given."""


class Reading(probe.Reading):
    """What TensorFlow may take of every GPU, and what it took of the first."""

    given: tuple[str, ...]
    """PCI bus ids of the GPUs that the probe was given."""
    seen: int
    """GPUs that TensorFlow lists."""
    ceilings: tuple[Ceiling, ...] = ()
    """In TensorFlow's order."""
    start: MemoryUse | None = None
    """Of the first GPU, before TensorFlow made its devices; None where it lists too few GPUs."""
    made: MemoryUse | None = None
    """After it made them, before the first tensor."""
    first: MemoryUse | None = None
    """After a tensor of 16 bytes."""
    kernel: Kernel | None = None

    def figure(self) -> str:
        if self.made is None or self.first is None:
            return f"TensorFlow lists {self.seen} of {len(self.given)} GPUs"
        mib = taken(self.made, self.first) / MIB
        return f"{mib:.0f} MiB at the first tensor, ceiling {self.ceilings[0].ceiling_mib if self.ceilings else '?'}"


def measure(ctx: Context) -> Reading:
    tf = ctx.tf
    given = tuple(gpu.pci_bus_id for gpu in ctx.gpus)
    seen = len(tf.config.list_physical_devices("GPU"))
    if seen < len(given):
        return Reading(given, seen)
    tf.config.set_soft_device_placement(False)
    start = ctx.memory(ctx.gpus[0])
    with ctx.placements() as log:
        tf.config.list_logical_devices("GPU")
    uses = {gpu.pci_bus_id: ctx.memory(gpu) for gpu in ctx.gpus}
    created = created_devices(log.lines)
    majors = {found["device"]: int(found["major"]) for line in log.lines if (found := _CAPABILITY.search(line))}
    free = {gpu.pci_bus_id: gpu.memory_total_bytes - uses[gpu.pci_bus_id].used_bytes for gpu in ctx.gpus}
    ceilings = tuple(
        Ceiling(at := created.get(device, ""), mib, majors.get(device, 0), free.get(at, 0))
        for device, mib in ceilings_mib(log.lines).items()
    )
    made = uses[given[0]]
    with tf.device("/GPU:0"):
        matrix = tf.identity(tf.constant(MATRIX))
        first = ctx.memory(ctx.gpus[0])
        # Not before: the matrix library takes memory of its own beside the pool.
        product = tf.matmul(matrix, matrix)
    refuse_disturbance(start, made, first)
    device = short_device(product.device)
    kernel = Kernel(device, created.get(device, ""), is_square(product))
    return Reading(given, seen, ceilings, start, made, first, kernel)


def judge(reading: Reading, facts: Facts, limits: Limits) -> Iterator[Judgement]:
    if reading.start is None or reading.made is None or reading.first is None or reading.kernel is None:
        yield GPU_NOT_SEEN.found(seen=reading.seen, given=len(reading.given))
        return
    for one in reading.ceilings:
        if is_partitioned(facts, one.pci_bus_id) or one.pci_bus_id not in reading.given:
            continue
        free, ceiling = one.free_bytes, one.ceiling_mib * MIB
        near = [_ceiling(free + more, one.major) for more in (-TOLERANCE_BYTES, 0, TOLERANCE_BYTES)]
        if min(abs(ceiling - expected) for expected in near) > TOLERANCE_BYTES:
            yield OTHER_CEILING.found(
                ceiling_mib=one.ceiling_mib,
                pci_bus_id=one.pci_bus_id,
                free_mib=free / MIB,
                expected_mib=_ceiling(free, one.major) / MIB,
            )
    rise = taken(reading.made, reading.first)
    expected = BACKED_OFF * min([LIMIT_MIB, *(one.ceiling_mib for one in reading.ceilings[:1])])
    if facts.variables.get("TF_FORCE_GPU_ALLOW_GROWTH") == "true":
        yield GROWS.found(taken_mib=rise / MIB)
    elif rise < expected * MIB - SLACK_BYTES:
        made_mib = taken(reading.start, reading.made) / MIB
        yield NOT_ALL.found(taken_mib=rise / MIB, expected_mib=expected, made_mib=made_mib)
    if rise > LIMIT_MIB * MIB + SLACK_BYTES:
        yield LIMIT_IGNORED.found(limit_mib=LIMIT_MIB, taken_mib=rise / MIB)
    yield from judge_kernel(reading.kernel, reading.given[0])


def _ceiling(free_bytes: int, major: int) -> int:
    """Return what TensorFlow may take of ``free_bytes``; ``MinSystemMemory`` in its gpu_device.cc, measured on 2.21."""
    if free_bytes < 2 << 30:
        reserve = 225
    else:
        reserve = next((mib for most, mib in ((6, 500), (7, 1050), (8, 1536)) if major <= most), 1800)
    return free_bytes - reserve * MIB if free_bytes > reserve * MIB else free_bytes


_PCI = "0000:3b:00.0"


def _case(
    name: str,
    *expect: str,
    ceiling_mib: int = 14447,
    major: int = 8,
    free_mib: int = 15983,
    mib: int = 496,
    kernel: Kernel = Kernel("GPU:0", _PCI, True),  # noqa: B008  # immutable
    facts: Facts | None = None,
) -> Case:
    start, made, first = (MemoryUse(used * MIB, None) for used in (1, 401, 401 + mib))
    ceiling = Ceiling(_PCI, ceiling_mib, major, free_mib * MIB)
    reading = Reading((_PCI,), 1, (ceiling,), start, made, first, kernel)
    verified = (_PCI,) if kernel.correct and kernel.pci_bus_id == _PCI else ()
    return Case(name, expect, reading, facts, verified=verified)


_FORCED = hostfacts.example(environment=EnvironmentFacts({"TF_FORCE_GPU_ALLOW_GROWTH": "true"}))

CASES = (
    _case("takes all it is let"),
    _case("compute capability 6.1", ceiling_mib=7692, major=6, free_mib=8192),
    _case("compute capability 7.5", ceiling_mib=7142, major=7, free_mib=8192),
    _case("compute capability 12.0", ceiling_mib=6392, major=12, free_mib=8192),
    _case("little is free", ceiling_mib=1275, free_mib=1500),
    _case("hardly anything is free", ceiling_mib=200, free_mib=200, mib=180),
    _case("just above 2 GiB by NVML, below it by CUDA", ceiling_mib=1815, free_mib=2060),
    _case("an instance of a GPU", ceiling_mib=2000, facts=partitioned(_PCI)),
    _case("another reserve", OTHER_CEILING.name, ceiling_mib=14183),
    _case("takes as it needs", NOT_ALL.name, mib=2),
    _case("takes more than it is let", LIMIT_IGNORED.name, mib=14447),
    _case("growth forced by the environment", GROWS.name, mib=2, facts=_FORCED),
    _case("another GPU", OTHER_GPU.name, kernel=Kernel("GPU:0", "0000:af:00.0", True)),
    _case("a wrong product", WRONG_RESULT.name, kernel=Kernel("GPU:0", _PCI, False)),
    Case("TensorFlow without GPU", (GPU_NOT_SEEN.name,), Reading((_PCI,), 0)),
)
