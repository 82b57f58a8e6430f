"""By default TensorFlow takes nearly all free memory of a GPU, not when it makes the device but at the first tensor.

What it does
    Lets TensorFlow make its devices with default options and compares the ceiling in each `Created device ... with N MB
    memory` line with the memory that NVML says is free then, less the reserve that TensorFlow leaves (225 MiB if
    less than 2 GiB are free; otherwise, by compute capability: 500 MiB up to 6.x, 1050 for 7.x, 1536 for 8.x, 1800 from
    9.0 on). Then it puts a tensor of 16 bytes on the first GPU. `TF_PER_DEVICE_MEMORY_LIMIT_MB=512` keeps TensorFlow,
    which tries again with 10 % less each time it is refused, from taking more than 512 MiB.
Why it matters
    The ceiling is what a program can use, not what is in use: between the two moments another program may take it. From
    the first tensor on there is no room for another program, whatever the first one needs.
What to do
    To take memory as it is needed: `tf.config.experimental.set_memory_growth(gpu, True)` for every GPU, or
    `tf.compat.v1.GPUOptions(allow_growth=True)`. To take a fixed share:
    `tf.config.set_logical_device_configuration(gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=4096)])`.
"""

from __future__ import annotations

import re

from gpudiag import fix, probe
from gpudiag.knowledge.placement import created_devices
from gpudiag.knowledge.variables import FORCE_GROWTH
from gpudiag.model.facts import Facts
from gpudiag.model.report import Limit
from gpudiag.probe import MIB, SLACK_BYTES, Context, Findings, Kernel, MemoryUse, mib, note, refuse_disturbance, warn
from gpudiag.probes.common import MATRIX, SET_A_LIMIT, ceilings_mib, is_partitioned
from gpudiag.record import Record

PROBE = probe.Probe(
    needs=probe.Needs(gpus=1),
    scope=probe.Scope.ALL_GPUS,
    exclusive=True,
    env={"TF_PER_DEVICE_MEMORY_LIMIT_MB": "512"},
    honours=(FORCE_GROWTH,),
)


class Fault(probe.KernelFaults):
    other_ceiling = warn(
        "TensorFlow may take {ceiling_mib} MiB of {pci_bus_id}; {free_bytes} are free, less the reserve "
        "{expected_bytes}",
        means="The ceiling is not the free memory less the reserve: it was changed, or releases differ.",
        do="Read N in TensorFlow's line `Created device ... with N MB memory` for what a program can have.",
    )
    not_all = warn(
        "the first tensor took {taken_bytes}, expected at least {expected_bytes}; making the device took {made_bytes}",
        means="By default the first tensor took less than nearly all free memory.",
        do=(
            fix.nvidia_smi("look for what else fills this GPU"),
            fix.note("if it is empty, look for code that sets memory growth"),
        ),
    )
    limit_ignored = warn(
        "TF_PER_DEVICE_MEMORY_LIMIT_MB={limit_mib} did not hold: the first tensor took {taken_bytes}",
        means="TF_PER_DEVICE_MEMORY_LIMIT_MB did not hold: the first tensor took more.",
        do=SET_A_LIMIT,
    )
    grows = note(
        "TF_FORCE_GPU_ALLOW_GROWTH=true: the first tensor took {taken_bytes}, by default it takes all",
        means="`TF_FORCE_GPU_ALLOW_GROWTH` in your environment makes the pool grow instead.",
        do=fix.unset("TF_FORCE_GPU_ALLOW_GROWTH", note="to have memory taken at once"),
    )


LIMIT_MIB = 512
# TensorFlow asks for 10 % less each time it is refused, so it can end 10 % below what it is let.
BACKED_OFF = 0.9
# NVML and CUDA count what is free a little differently; the reserves lie 264 MiB apart and more.
TOLERANCE_BYTES = 128 * MIB
_CAPABILITY = re.compile(r"device:(?P<device>GPU:\d+) .{0,300}compute capability: (?P<major>\d+)\.\d+")


class Ceiling(Record):
    """TensorFlow's limit for a GPU, and the free memory there."""

    pci_bus_id: str
    """The PCI bus id in TensorFlow's own description."""
    ceiling_mib: int
    major: int
    """The major number of the compute capability; 0 if TensorFlow named none."""
    free_bytes: int
    """Free memory by NVML, after the device was made; 0 if the GPU is not among the given ones."""


class Reading(probe.GpuReading):
    """TensorFlow's limit for every GPU, and the memory that it took of the first."""

    ceilings: tuple[Ceiling, ...]
    """The ceilings of the GPUs, in TensorFlow's order."""
    start: MemoryUse
    """Memory of the first GPU, before TensorFlow made its devices."""
    made: MemoryUse
    """Memory after it made them, before the first tensor."""
    first: MemoryUse
    """Memory after a tensor of 16 bytes."""
    kernel: Kernel

    def figure(self) -> str:
        rise = mib(self.first - self.made)
        return f"{rise} at the first tensor, ceiling {self.ceilings[0].ceiling_mib if self.ceilings else '?'} MiB"

    def limits(self) -> tuple[Limit, ...]:
        return (self.made.plus(f"TF_PER_DEVICE_MEMORY_LIMIT_MB={LIMIT_MIB}", LIMIT_MIB * MIB),)


def measure(ctx: Context) -> Reading:
    tf = ctx.tf
    ctx.list_gpus()
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
    made = uses[ctx.given[0]]
    with tf.device("/GPU:0"):
        matrix = tf.identity(tf.constant(MATRIX))
        first = ctx.memory(ctx.gpus[0])
        # Not before: the matrix library takes its own memory beside the pool.
        product = tf.matmul(matrix, matrix)
    refuse_disturbance(start, made, first)
    return Reading(ceilings, start, made, first, ctx.verify(product, created))


def judge(reading: Reading, facts: Facts) -> Findings:
    for device in reading.ceilings:
        if is_partitioned(facts, device.pci_bus_id) or device.pci_bus_id not in reading.given:
            continue
        free, ceiling = device.free_bytes, device.ceiling_mib * MIB
        near = [_ceiling(free + more, device.major) for more in (-TOLERANCE_BYTES, 0, TOLERANCE_BYTES)]
        if min(abs(ceiling - expected) for expected in near) > TOLERANCE_BYTES:
            yield Fault.other_ceiling.found(
                ceiling_mib=device.ceiling_mib,
                pci_bus_id=device.pci_bus_id,
                free_bytes=free,
                expected_bytes=_ceiling(free, device.major),
            )
    rise = reading.first - reading.made
    expected = BACKED_OFF * min([LIMIT_MIB, *(ceiling.ceiling_mib for ceiling in reading.ceilings[:1])])
    if facts.variables.get("TF_FORCE_GPU_ALLOW_GROWTH") == "true":
        yield Fault.grows.found(taken_bytes=rise)
    elif rise < expected * MIB - SLACK_BYTES:
        made = reading.made - reading.start
        yield Fault.not_all.found(taken_bytes=rise, expected_bytes=expected * MIB, made_bytes=made)
    if rise > LIMIT_MIB * MIB + SLACK_BYTES:
        yield Fault.limit_ignored.found(limit_mib=LIMIT_MIB, taken_bytes=rise)
    yield from reading.kernel.verified_on(reading.given[0])


def _ceiling(free_bytes: int, major: int) -> int:
    """Return the limit that TensorFlow sets for ``free_bytes``; ``MinSystemMemory`` in its gpu_device.cc, measured on
    2.21."""
    if free_bytes < 2 << 30:
        reserve = 225
    else:
        reserve = next((mib for most, mib in ((6, 500), (7, 1050), (8, 1536)) if major <= most), 1800)
    return free_bytes - reserve * MIB if free_bytes > reserve * MIB else free_bytes
