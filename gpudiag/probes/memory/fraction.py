"""`per_process_gpu_memory_fraction` caps what TensorFlow takes of a GPU, and all of it is taken at once.

What it does
    Opens a `tf.compat.v1.Session` with a fraction that stands for 256 MiB, copies one small tensor to the GPU, and then
    asks for 512 MiB. NVML reports the memory in use on the device before the first tensor (the CUDA context exists by
    then), after it, and after the large one. A matrix product is computed and checked on the GPU at the end.
Why it matters
    The fraction is how several programs share one GPU. It is a share of the total memory, whatever is free, and it caps
    TensorFlow's pool alone: the CUDA context and the libraries' own memory come on top.
What to do
    Set the fraction in the first session of the process; another one in a later session is ignored silently. In
    TensorFlow 2 rather set a limit in MiB: `tf.config.set_logical_device_configuration(gpu,
    [tf.config.LogicalDeviceConfiguration(memory_limit=4096)])`.
"""

from __future__ import annotations

from gpudiag import fix, probe
from gpudiag.knowledge.variables import ALLOCATOR, FORCE_GROWTH
from gpudiag.model.facts import Facts
from gpudiag.model.report import Limit
from gpudiag.probe import MIB, SLACK_BYTES, Context, Findings, fail, mib, warn
from gpudiag.probes.common import SET_A_LIMIT, GraphProgram, Limited, LimitFaults, is_partitioned, without_retry

PROBE = probe.Probe(
    needs=probe.Needs(gpus=1, free_bytes=256 * MIB),
    scope=probe.Scope.EACH_GPU,
    sampled=True,
    exclusive=True,
    # Were the fraction ignored, TensorFlow would take all that is free; this makes it stop at 1 GiB.
    env={"TF_PER_DEVICE_MEMORY_LIMIT_MB": "1024"},
    honours=(ALLOCATOR, FORCE_GROWTH),
)


class Fault(LimitFaults):
    cap_ignored = fail(
        "took {taken_bytes}, the cap was {limit_bytes}; a tensor of {beyond_bytes} {ended}",
        means="TensorFlow took more than the cap, or gave out memory beyond it.",
        do=SET_A_LIMIT,
    )
    no_cap = warn(
        "TF_GPU_ALLOCATOR={allocator} knows no cap: {beyond_bytes} were given out under a cap of {limit_bytes}",
        means="The chosen TF_GPU_ALLOCATOR knows no cap: more was given out than the fraction allows.",
        do=fix.unset("TF_GPU_ALLOCATOR", note="to have the fraction and memory limits honoured"),
    )


CAP_BYTES = 256 * MIB


class Reading(probe.GpuReading):
    """The requested cap, and the memory taken."""

    fraction: float
    """The cap as a share of the device's total memory, 0 to 1."""
    pool: Limited

    def figure(self) -> str:
        return f"{mib(self.pool.first - self.pool.before)} at once, cap {mib(CAP_BYTES)}"

    def limits(self) -> tuple[Limit, ...]:
        return (self.pool.before.plus(f"fraction {self.fraction:.3g}", CAP_BYTES),)


def measure(ctx: Context) -> Reading:
    (gpu,) = ctx.gpus
    fraction = CAP_BYTES / gpu.memory_total_bytes
    ctx.list_gpus()
    options = without_retry(ctx.tf.compat.v1.GPUOptions(per_process_gpu_memory_fraction=fraction))
    program = GraphProgram(ctx)
    with program.session(options), ctx.watch(gpu) as memory:
        before = memory()
        program.copy()
        first = memory()
        exceeded = ctx.attempt(lambda: program.fill(2 * CAP_BYTES))
        last = memory()
        kernel = program.multiply()
    return Reading(fraction, Limited(before, first, last, exceeded, kernel))


def judge(reading: Reading, facts: Facts) -> Findings:
    # Of a MIG instance the fraction is smaller than was meant: NVML reports the memory of the whole GPU.
    least = 0 if is_partitioned(facts, reading.given[0]) else CAP_BYTES - SLACK_BYTES
    yield from reading.pool.judged(CAP_BYTES, facts, least, Fault.cap_ignored, Fault.no_cap)
    yield from reading.pool.kernel.verified_on(reading.given[0])
