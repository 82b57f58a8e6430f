"""With memory growth TensorFlow takes GPU memory as tensors need it, and not nearly all of it at once.

What it does
    Calls `tf.config.experimental.set_memory_growth(gpu, True)`, lets TensorFlow make the device, then puts a tensor of
    16 bytes and one of 100 MiB on it, and deletes the large one. NVML reports the memory in use on the device after
    each step. It tries to switch growth off afterwards, and computes and checks a matrix product on the GPU.
Why it matters
    Without growth the first tensor takes nearly all memory of every visible GPU, and other programs on it fail. Growth
    decides when memory is taken, not how much: what was taken is kept until the process ends.
What to do
    Call `tf.config.experimental.set_memory_growth(gpu, True)` for every GPU right after the import. It is lost
    silently if any device, even the CPU, is split into logical devices; `export TF_FORCE_GPU_ALLOW_GROWTH=true` is
    not.
"""

from __future__ import annotations

from typing import Any

from gpudiag import fix, probe
from gpudiag.knowledge.variables import ALLOCATOR, FORCE_GROWTH
from gpudiag.model.facts import Facts
from gpudiag.model.report import Limit
from gpudiag.probe import MIB, SLACK_BYTES, Context, Findings, Kernel, MemoryUse, Raised, fail, mib, note, warn
from gpudiag.probes.common import MATRIX, without_allocation_retry
from gpudiag.record import Record

PROBE = probe.Probe(
    needs=probe.Needs(gpus=1, free_bytes=256 * MIB),
    scope=probe.Scope.EACH_GPU,
    sampled=True,
    exclusive=True,
    # Were growth ignored, TensorFlow would take all that is free; this makes it stop at 1 GiB.
    env={"TF_PER_DEVICE_MEMORY_LIMIT_MB": "1024"},
    honours=(ALLOCATOR, FORCE_GROWTH),
)


class Fault(probe.KernelFaults):
    growth_ignored = fail(
        "a tensor of 16 bytes took {first_bytes}, one of {large_bytes} made it {grown_bytes}",
        means="Far more was taken than the tensors need.",
        do=fix.export("TF_FORCE_GPU_ALLOW_GROWTH", "true", "force it"),
    )
    out_of_memory = fail(
        "a tensor of {large_bytes} could not be made: {error}",
        means="With growth a large tensor could not be made.",
        do=fix.nvidia_smi("look for what fills this GPU, and end it"),
    )
    not_on_device = fail(
        "a tensor of {large_bytes} on {device} raised the memory of {pci_bus_id} by {grown_bytes} only",
        means="A large tensor did not raise the memory of its GPU by its size.",
        do=(
            fix.nvidia_smi("run it beside the program, to see where the memory went"),
            fix.note("choose GPUs by UUID in CUDA_VISIBLE_DEVICES", kind=fix.Kind.SET_VARIABLE),
        ),
    )
    given_back = note(
        "deleting a tensor of {large_bytes} gave {back_bytes} back; TensorFlow's own pool keeps what it took",
        means="Memory was given back to the driver when the tensor was deleted: the allocator is another.",
        do=fix.unset(
            "TF_GPU_ALLOCATOR", note="TF_GPU_ALLOCATOR=cuda_malloc and cuda_malloc_async work so; for TensorFlow's own"
        ),
    )
    overridden = note(
        "TF_FORCE_GPU_ALLOW_GROWTH={value} decides here, set_memory_growth does not: "
        "a tensor of 16 bytes took {first_bytes}",
        means="TF_FORCE_GPU_ALLOW_GROWTH decides here, set_memory_growth does not.",
        do=fix.unset("TF_FORCE_GPU_ALLOW_GROWTH", note="to let programs decide"),
    )
    late_change_accepted = warn(
        "set_memory_growth(gpu, False) was accepted after TensorFlow had initialised",
        do="Do not rely on an error: call it in the first lines after `import tensorflow`.",
    )


LARGE_BYTES = 100 * MIB
# TensorFlow's pool grows by regions that double: 2 MiB, then 128 MiB for this tensor (measured). Twice that is a fault.
MOST_BYTES = 256 * MIB


class GrowthPool(Record):
    """The memory that TensorFlow took, by NVML."""

    before: MemoryUse
    """Memory after the CUDA context was made, before the first tensor."""
    first: MemoryUse
    """Memory after a tensor of 16 bytes."""
    grown: MemoryUse
    """Memory after a tensor of :data:`LARGE_BYTES`."""
    large: Raised | None
    """The error of making the large tensor."""
    freed: MemoryUse
    """Memory after the large tensor was deleted; TensorFlow gives nothing back."""
    late_change: Raised | None
    """The error of switching growth off afterwards."""
    kernel: Kernel


class Reading(probe.GpuReading):
    """The memory that was taken on each GPU, and when."""

    pool: GrowthPool

    def figure(self) -> str:
        first, grown = self.pool.first - self.pool.before, self.pool.grown - self.pool.before
        return f"{mib(first)}, then {mib(grown)} for a tensor of {mib(LARGE_BYTES)}"

    def limits(self) -> tuple[Limit, ...]:
        return (self.pool.before.plus("most that growth may take", MOST_BYTES),)


def measure(ctx: Context) -> Reading:
    tf = ctx.tf
    (gpu,) = ctx.gpus
    without_allocation_retry(ctx)
    (device,) = ctx.list_gpus()
    tf.config.experimental.set_memory_growth(device, True)
    tf.config.set_soft_device_placement(False)
    tf.config.list_logical_devices("GPU")  # makes the CUDA context
    with ctx.watch(gpu) as memory, tf.device("/GPU:0"):
        before = memory()
        matrix = tf.identity(tf.constant(MATRIX))
        first = memory()
        tensors: list[Any] = []
        large = ctx.attempt(lambda: tensors.append(tf.zeros([LARGE_BYTES // 4])))
        grown = memory()
        tensors.clear()
        freed = memory()
        # Not before: the matrix library takes its own memory beside the pool.
        product = tf.matmul(matrix, matrix)
    late_change = ctx.attempt(lambda: tf.config.experimental.set_memory_growth(device, False))
    return Reading(GrowthPool(before, first, grown, large, freed, late_change, ctx.verify(product)))


def judge(reading: Reading, facts: Facts) -> Findings:
    pool = reading.pool
    first, grown = pool.first - pool.before, pool.grown - pool.before
    figures = {"large_bytes": LARGE_BYTES, "first_bytes": first, "grown_bytes": grown}
    forced = facts.variables.get("TF_FORCE_GPU_ALLOW_GROWTH")
    if forced in {"true", "false"}:
        yield Fault.overridden.found(value=forced, first_bytes=first)
    if forced != "false" and (first > SLACK_BYTES or grown > MOST_BYTES):
        yield Fault.growth_ignored.found(**figures)
    if pool.large:
        yield Fault.out_of_memory.found(**figures, error=pool.large.brief)
    elif grown < LARGE_BYTES - SLACK_BYTES:
        yield Fault.not_on_device.found(**figures, device=pool.kernel.device, pci_bus_id=reading.given[0])
    back = grown - (pool.freed - pool.before)
    if back > SLACK_BYTES:
        yield Fault.given_back.found(**figures, back_bytes=back)
    if pool.late_change is None:
        yield Fault.late_change_accepted.found()
    yield from pool.kernel.verified_on(reading.given[0])
