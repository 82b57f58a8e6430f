"""A visible but unused GPU loses only a CUDA context's memory to a program, and a hidden GPU loses none.

What it does
    Opens a `tf.compat.v1.Session` that sees the first GPU only, copies a tensor to it, and computes and checks a matrix
    product. It then opens a session that sees all GPUs and does the same on the first. NVML reports what the other GPUs
    lost, while they were hidden and when they were visible. `TF_PER_DEVICE_MEMORY_LIMIT_MB=256` keeps the pool small.
Why it matters
    TensorFlow makes a context on every visible GPU, a few hundred MiB each, when it makes its devices. On a shared
    machine that is memory which nobody uses and another program lacks.
What to do
    Hide what the program does not use: `export CUDA_VISIBLE_DEVICES=GPU-...` (a UUID from nvidia-smi -L), or right
    after the import `tf.config.set_visible_devices(gpus[0], "GPU")`, in TensorFlow 1 code
    `tf.compat.v1.GPUOptions(visible_device_list="0")`.
"""

from __future__ import annotations

from gpudiag import fix, probe
from gpudiag.model.report import Limit
from gpudiag.probe import MIB, SLACK_BYTES, Context, Findings, Kernel, MemoryUse, mib, refuse_disturbance, warn
from gpudiag.probes.common import GraphProgram
from gpudiag.record import Record

LIMIT_MIB = 256
PROBE = probe.Probe(
    needs=probe.Needs(gpus=2, free_bytes=256 * MIB),
    scope=probe.Scope.ALL_GPUS,
    exclusive=True,
    # TensorFlow takes all that is free of every GPU; this makes it stop at 256 MiB of each.
    env={"TF_PER_DEVICE_MEMORY_LIMIT_MB": str(LIMIT_MIB)},
)


class Fault(probe.KernelFaults):
    hidden_taken = warn(
        "{pci_bus_id} was hidden from the session and lost {taken_bytes}",
        means="A GPU that was hidden from the session lost memory.",
        do=fix.export("CUDA_VISIBLE_DEVICES", "GPU-...", "hide it from CUDA altogether; nvidia-smi -L lists them"),
    )
    pool_taken = warn(
        "{pci_bus_id} was visible and not used, and lost {taken_bytes} when {used} was used",
        means="A visible GPU that was not used lost a pool of memory beside the context.",
        do=fix.export("CUDA_VISIBLE_DEVICES", "GPU-...", "hide it from the program; nvidia-smi -L lists them"),
    )
    much_taken = warn(
        "{pci_bus_id} was visible and not used, and lost {taken_bytes} when TensorFlow made its device",
        means="A visible GPU that was not used lost more than 1 GiB for its context.",
        do=fix.export(
            "CUDA_MODULE_LOADING", "LAZY", "hide it from the program, and let CUDA load kernels when they are used"
        ),
    )


CONTEXT_BYTES = 1 << 30


class Idle(Record):
    """The memory of a GPU that was given no work."""

    pci_bus_id: str
    start: MemoryUse
    """Memory before the first session."""
    hidden: MemoryUse
    """Memory after the session that did not see it."""
    made: MemoryUse
    """Memory after the session that sees it was opened."""
    unused: MemoryUse
    """Memory after that session worked on the first GPU."""


class Reading(probe.GpuReading):
    """The memory that idle GPUs lost."""

    idle: tuple[Idle, ...]
    kernel: Kernel
    """The product that was computed on the first GPU."""

    def figure(self) -> str:
        hidden, visible = (mib(max(rises)) for rises in zip(*map(_rises, self.idle), strict=True))
        return f"unused {visible}, hidden {hidden}"

    def limits(self) -> tuple[Limit, ...]:
        name = f"TF_PER_DEVICE_MEMORY_LIMIT_MB={LIMIT_MIB}"
        return tuple(gpu.made.plus(name, LIMIT_MIB * MIB, gpu.pci_bus_id) for gpu in self.idle)


def measure(ctx: Context) -> Reading:
    ctx.list_gpus()
    start = _idle(ctx)
    _, kernel = _use_first(ctx, "0")
    hidden = _idle(ctx)
    made, again = _use_first(ctx, "")
    unused = _idle(ctx)
    for uses in zip(start, hidden, made, unused, strict=True):
        refuse_disturbance(*uses)
    idle = tuple(map(Idle, ctx.given[1:], start, hidden, made, unused))
    return Reading(idle, Kernel(kernel.device, kernel.pci_bus_id, kernel.correct and again.correct))


def _idle(ctx: Context) -> list[MemoryUse]:
    return [ctx.memory(gpu) for gpu in ctx.gpus[1:]]


def _use_first(ctx: Context, visible: str) -> tuple[list[MemoryUse], Kernel]:
    """Work on ``GPU:0`` in a session that sees ``visible``; return the other GPUs' memory before the work, and the
    product."""
    program = GraphProgram(ctx)
    with program.session(ctx.tf.compat.v1.GPUOptions(visible_device_list=visible)):
        made = _idle(ctx)
        program.copy()
        return made, program.multiply()


def _rises(idle: Idle) -> tuple[int, int]:
    """Return the memory that a GPU lost while hidden and, after that, while visible."""
    return idle.hidden - idle.start, idle.unused - idle.hidden


def judge(reading: Reading) -> Findings:
    for gpu in reading.idle:
        hidden, context, pool = gpu.hidden - gpu.start, gpu.made - gpu.hidden, gpu.unused - gpu.made
        if hidden > SLACK_BYTES:
            yield Fault.hidden_taken.found(pci_bus_id=gpu.pci_bus_id, taken_bytes=hidden)
        if context > CONTEXT_BYTES:
            yield Fault.much_taken.found(pci_bus_id=gpu.pci_bus_id, taken_bytes=context)
        if pool > SLACK_BYTES:
            yield Fault.pool_taken.found(pci_bus_id=gpu.pci_bus_id, taken_bytes=pool, used=reading.given[0])
    yield from reading.kernel.verified_on(reading.given[0])
