"""Growth and a fraction work together: growth decides when memory is taken, the fraction how much at most.

What it does
    Opens a `tf.compat.v1.Session` with `allow_growth` and a `per_process_gpu_memory_fraction` that stands for 256 MiB.
    It copies one small tensor to the GPU, makes one of half the ceiling, and asks for twice the ceiling. NVML reports
    the memory in use after each step, TensorFlow's `Created device` line the ceiling. A matrix product is computed and
    checked at the end.
Why it matters
    The two are often taken for alternatives ("growth or fraction"). Together they let a program start small beside
    others and still never take more than its share.
What to do
    In the first session of the process: `gpu_options = tf.compat.v1.GPUOptions(per_process_gpu_memory_fraction=0.25,
    allow_growth=True)`. In TensorFlow 2 a limit ends growth; to have both, `export TF_FORCE_GPU_ALLOW_GROWTH=true` and
    set `tf.config.set_logical_device_configuration(gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=4096)])`.
"""

from __future__ import annotations

from gpudiag import fix, probe
from gpudiag.model.facts import Facts
from gpudiag.model.report import Limit
from gpudiag.probe import MIB, SLACK_BYTES, Context, Findings, Kernel, MemoryUse, Raised, fail, mib
from gpudiag.probes.common import SET_A_LIMIT, GraphProgram, LimitFaults, ceilings_mib, is_partitioned, without_retry
from gpudiag.record import Record

PROBE = probe.Probe(
    needs=probe.Needs(gpus=1, free_bytes=512 * MIB),
    scope=probe.Scope.ALL_GPUS,
    exclusive=True,
    # Were both ignored, TensorFlow would take all that is free; this makes it stop at 1 GiB.
    env={"TF_PER_DEVICE_MEMORY_LIMIT_MB": "1024"},
)


class Fault(probe.KernelFaults):
    other_ceiling = fail(
        "TensorFlow made the device with {ceiling_mib} MB, the fraction stands for {cap_bytes}",
        means="TensorFlow made the device with another size than the fraction stands for.",
        do="Set the fraction in the first session of the process: another one later is ignored silently.",
    )
    taken_at_once = fail(
        "with growth and a ceiling of {ceiling_mib} MiB the first tensor took {first_bytes}, expected about 2 MiB",
        means="With growth and a fraction the first tensor took much memory at once.",
        do=fix.export("TF_FORCE_GPU_ALLOW_GROWTH", "true", "force growth"),
    )
    not_given = fail(
        "a tensor of {within_bytes} below a ceiling of {ceiling_mib} MiB was refused: {error}",
        means="A tensor below the ceiling of the fraction was refused.",
        do=fix.nvidia_smi("look for what fills this GPU, and end it"),
    )
    ceiling_ignored = fail(
        "took {last_bytes} under a ceiling of {ceiling_mib} MiB; a tensor of {beyond_bytes} {ended}",
        means="With growth, TensorFlow took more than the fraction allows.",
        do=SET_A_LIMIT,
    )
    other_error = LimitFaults.other_error


CAP_BYTES = 256 * MIB


class FractionPool(Record):
    """The memory that the session took, by NVML."""

    ceiling_mib: int
    """The most that the device may take, according to TensorFlow; 0 if it named no GPU:0."""
    before: MemoryUse
    """Memory after the CUDA context was made, before the first tensor."""
    first: MemoryUse
    """Memory after the first tensor, of 16 bytes."""
    grown: MemoryUse
    """Memory after a tensor of half the ceiling."""
    within: Raised | None
    """The error of making a tensor of half the ceiling."""
    last: MemoryUse
    """Memory after twice the ceiling was requested."""
    exceeded: Raised | None
    """The error of requesting twice the ceiling."""
    kernel: Kernel


class Reading(probe.GpuReading):
    """The requested limit, and the memory taken."""

    pool: FractionPool
    """Memory of the first GPU."""

    def figure(self) -> str:
        first, grown = self.pool.first - self.pool.before, self.pool.grown - self.pool.before
        return f"{mib(first)}, then {mib(grown)}, ceiling {self.pool.ceiling_mib} MiB"

    def limits(self) -> tuple[Limit, ...]:
        return (self.pool.before.plus("fraction", self.pool.ceiling_mib * MIB),)


def measure(ctx: Context) -> Reading:
    gpu = ctx.gpus[0]
    ctx.list_gpus()
    options = ctx.tf.compat.v1.GPUOptions(
        per_process_gpu_memory_fraction=CAP_BYTES / gpu.memory_total_bytes, allow_growth=True, visible_device_list="0"
    )
    program = GraphProgram(ctx)
    with program.session(without_retry(options)), ctx.watch(gpu) as memory:
        ceiling_mib = ceilings_mib(program.lines).get("GPU:0", 0)
        before = memory()
        program.copy()
        first = memory()
        within = ctx.attempt(lambda: program.fill(ceiling_mib * MIB // 2))
        grown = memory()
        exceeded = ctx.attempt(lambda: program.fill(ceiling_mib * MIB * 2))
        last = memory()
        return Reading(FractionPool(ceiling_mib, before, first, grown, within, last, exceeded, program.multiply()))


def judge(reading: Reading, facts: Facts) -> Findings:
    pool = reading.pool
    ceiling, first = pool.ceiling_mib * MIB, pool.first - pool.before
    highest = max(use - pool.before for use in (pool.first, pool.grown, pool.last))
    figures = {"ceiling_mib": pool.ceiling_mib, "beyond_bytes": 2 * ceiling}
    # CUDA counts a little less memory than NVML: what the driver keeps for itself.
    if not is_partitioned(facts, reading.given[0]) and not 0.95 * CAP_BYTES <= ceiling <= CAP_BYTES + MIB:
        yield Fault.other_ceiling.found(ceiling_mib=pool.ceiling_mib, cap_bytes=CAP_BYTES)
    if first > SLACK_BYTES:
        yield Fault.taken_at_once.found(**figures, first_bytes=first)
    if pool.within:
        yield Fault.not_given.found(**figures, within_bytes=ceiling / 2, error=pool.within.brief)
    if pool.exceeded is None or highest > ceiling + SLACK_BYTES:
        ended = "was refused" if pool.exceeded else "was given out"
        yield Fault.ceiling_ignored.found(**figures, last_bytes=highest, ended=ended)
    elif pool.exceeded.type != "ResourceExhaustedError":
        yield Fault.other_error.found(**figures, device="GPU:0", limit_bytes=ceiling, error=pool.exceeded.brief)
    yield from pool.kernel.verified_on(reading.given[0])
