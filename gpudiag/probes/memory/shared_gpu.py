"""On a shared GPU TensorFlow by default counts on the free memory; a fraction counts on all of it, used or not.

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
What to do
    Give each program its own part: `tf.config.set_logical_device_configuration(gpu,
    [tf.config.LogicalDeviceConfiguration(memory_limit=4096)])`, or in a session
    `tf.compat.v1.GPUOptions(per_process_gpu_memory_fraction=0.3)`: the parts, and some 500 MiB for each process,
    together below the total.
"""

from __future__ import annotations

from typing import Any

from gpudiag import fix, probe
from gpudiag.knowledge.placement import created_devices
from gpudiag.model.facts import Facts
from gpudiag.model.report import Gpu
from gpudiag.probe import MIB, SLACK_BYTES, Context, Findings, Kernel, MemoryUse, Raised, fail, mib, note, warn
from gpudiag.probes.common import MATRIX, SET_A_LIMIT, attempt_context, ceilings_mib, is_partitioned, is_square
from gpudiag.record import Record

HELD_BYTES = 256 * MIB

PROBE = probe.Probe(
    needs=probe.Needs(gpus=1, free_bytes=2 * HELD_BYTES),
    scope=probe.Scope.ALL_GPUS,
    exclusive=True,
    # No single allocation above 128 MiB: both sessions count on nearly the whole GPU, and would take it. What the other
    # process takes is two of that size.
    env={"TF_PER_DEVICE_MEMORY_LIMIT_MB": "128"},
)


class Fault(probe.KernelFaults):
    more_than_free = fail(
        "by default TensorFlow counts on {ceiling_mib} MiB of {device}, {free_bytes} are free",
        means="By default TensorFlow counts on memory that another process holds.",
        do=SET_A_LIMIT,
    )
    less_than_free = warn(
        "by default TensorFlow counts on {ceiling_mib} MiB of {device}, {free_bytes} are free; "
        "its reserve is {reserve_bytes} at most",
        means="By default TensorFlow leaves more than its reserve unused.",
        do=fix.edit(
            "tf.config.set_logical_device_configuration(gpu, "
            "[tf.config.LogicalDeviceConfiguration(memory_limit={free_mib:.0f})])",
            "to have the rest",
        ),
    )
    fraction_of_free = note(
        "per_process_gpu_memory_fraction=1 counts on {ceiling_mib} MiB of {device}, {free_bytes} are free",
        means="The fraction did not count on more than is free; what this probe says does not hold here.",
        do="Go by the `Created device` line of the log for what a fraction stands for here.",
    )
    exclusive = note(
        "the compute mode of {pci_bus_id} is {mode}: a second process could not use it",
        means="This process could not use a GPU that another uses, because its compute mode forbids that.",
        do=fix.check("sudo nvidia-smi -i {pci_bus_id} -c DEFAULT", "if programs are to share this GPU"),
    )
    not_shareable = fail(
        "{device}, which another process uses, could not be used: {error}",
        means="This process could not use a GPU that another uses, although the compute mode allows it.",
        do=(fix.note("let one program at a time use this GPU"), probe.KERNEL_LOG),
    )
    not_held = fail(
        "the other process should have taken {held_bytes} of {pci_bus_id}, {what}",
        means="The other process did not take the memory that it should.",
        do=(fix.nvidia_smi("look for what else uses this GPU"), fix.ask("gpudiag check memory.limit")),
    )


# MinSystemMemory of TensorFlow 2.18-2.21: 1800 MiB from compute capability 9.0, less below.
RESERVE_BYTES = 1800 * MIB


class Shared(Record):
    """One GPU that two processes use."""

    idle: MemoryUse
    """Memory when the other process had only a CUDA context."""
    held: MemoryUse
    """Memory when the other process had taken its share, and this process nothing."""
    ours: MemoryUse
    """Memory when this process had a CUDA context as well."""
    ceiling_mib: int
    """The most that TensorFlow will take, by its ``Created device`` line; 0 without such a line."""
    failed: Raised | None
    """The error of making the session or of computing in it."""
    kernel: Kernel | None
    """A matrix product; None if it failed."""


class Reading(probe.GpuReading):
    """The memory on which TensorFlow counts."""

    total_bytes: tuple[int, ...]
    """The total memory of each GPU by NVML; the probe uses two GPUs."""
    holder: Raised | None
    """The error of taking memory in the other process."""
    default: Shared | None = None
    """The first GPU, with default options; None if the other process held no memory."""
    fraction: Shared | None = None
    """The second GPU, with a fraction of 1; None also if there is no second."""

    def figure(self) -> str:
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
    totals = tuple(gpu.memory_total_bytes for gpu in ctx.gpus)
    ctx.list_gpus()
    used = ctx.gpus[:2]
    ctx.peer.meet("made")
    idle = [ctx.memory(gpu) for gpu in used]
    ctx.peer.meet("idle")
    failed = ctx.peer.meet("held")
    if failed:
        ctx.peer.meet("end")
        return Reading(totals, Raised(*failed))
    held = [ctx.memory(gpu) for gpu in used]
    options = tf.compat.v1.GPUOptions
    sessions = (
        options(visible_device_list="0"),
        # A second session may add GPUs to those of the first, with their own options.
        options(visible_device_list="0,1", per_process_gpu_memory_fraction=1.0),
    )
    shared: list[Shared] = []
    for number, gpu in enumerate(used):
        shared.append(Shared(idle[number], held[number], *_compute(ctx, gpu, number, sessions[number])))
        if shared[-1].failed:
            break  # TensorFlow may hang at the next call
    ctx.peer.meet("end")
    return Reading(totals, None, *shared)


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


def judge(reading: Reading, facts: Facts) -> Findings:
    if reading.holder:
        yield Fault.not_held.found(
            held_bytes=HELD_BYTES, pci_bus_id=reading.given[0], what=f"it met {reading.holder.brief}"
        )
    for number, shared in enumerate((reading.default, reading.fraction)):
        if shared is None:
            continue
        device, pci_bus_id = f"GPU:{number}", reading.given[number]
        rose = shared.held - shared.idle
        if rose < HELD_BYTES - SLACK_BYTES:
            yield Fault.not_held.found(
                held_bytes=HELD_BYTES, pci_bus_id=pci_bus_id, what=f"whose use rose by {mib(rose)}"
            )
            continue
        mode = next(
            (nvml_device.compute_mode for nvml_device in facts.nvml_devices if nvml_device.pci_bus_id == pci_bus_id),
            None,
        )
        if shared.failed and mode and mode != "default":
            yield Fault.exclusive.found(pci_bus_id=pci_bus_id, mode=mode)
        elif shared.failed:
            yield Fault.not_shareable.found(device=device, error=shared.failed.brief)
        if shared.kernel is None:
            continue
        if not is_partitioned(facts, pci_bus_id):  # what is free of the whole GPU says nothing of an instance
            yield from _judge_ceiling(shared, device, _free(shared, reading.total_bytes[number]))
        yield from shared.kernel.verified_on(pci_bus_id)


def _judge_ceiling(shared: Shared, device: str, free: int) -> Findings:
    ceiling = shared.ceiling_mib * MIB
    figures: dict[str, str | float] = {"device": device, "ceiling_mib": shared.ceiling_mib, "free_bytes": free}
    if device != "GPU:0":  # the one with a fraction
        if ceiling < free + HELD_BYTES // 2:
            yield Fault.fraction_of_free.found(**figures)
    elif ceiling > free + SLACK_BYTES:
        yield Fault.more_than_free.found(**figures)
    elif ceiling < free - RESERVE_BYTES - SLACK_BYTES:
        yield Fault.less_than_free.found(**figures, reserve_bytes=RESERVE_BYTES, free_mib=free / MIB)
