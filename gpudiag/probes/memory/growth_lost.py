"""Logical devices anywhere, even on the CPU, end memory growth for every GPU silently.

What it does
    Calls `tf.config.experimental.set_memory_growth(gpu, True)`, splits the CPU into two logical devices, and puts a
    small tensor on the GPU. With two GPUs it also sets growth for all, gives the first GPU a logical device, and puts
    the tensor on the second; each in a separate process. NVML reports whether the tensor took about 2 MiB
    or its whole limit (512 MiB); `get_memory_growth` is asked too. A matrix product is checked on each.
Why it matters
    The program gets no error: `get_memory_growth` goes on to say True, and TensorFlow takes nearly all memory at its
    first tensor. Code that splits a CPU for a test does this to every GPU.
What to do
    `export TF_FORCE_GPU_ALLOW_GROWTH=true`: it is read below the place where growth is lost, and holds beside logical
    devices. Or give every GPU logical devices with limits: `tf.config.set_logical_device_configuration(gpu,
    [tf.config.LogicalDeviceConfiguration(memory_limit=4096)])`.
"""

from __future__ import annotations

from functools import partial

from gpudiag import fix, probe
from gpudiag.model.report import Limit
from gpudiag.probe import MIB, SLACK_BYTES, Context, Findings, Kernel, MemoryUse, note
from gpudiag.probes.common import MATRIX, create_devices
from gpudiag.record import Record

PROBE = probe.Probe(
    needs=probe.Needs(gpus=1, free_bytes=1536 * MIB),
    scope=probe.Scope.ALL_GPUS,
    exclusive=True,
    # TensorFlow takes all that is free once growth is lost; this makes it stop at 512 MiB.
    env={"TF_PER_DEVICE_MEMORY_LIMIT_MB": "512"},
)


class Fault(probe.KernelFaults):
    kept = note(
        "growth held beside {split}: the first tensor took {taken_bytes} of its limit of {limit_bytes}",
        means="Growth held here. Releases differ: the summary of this probe is not true of yours.",
        do=fix.export(
            "TF_FORCE_GPU_ALLOW_GROWTH", "true", "other releases of TensorFlow lose growth; this keeps it everywhere"
        ),
    )
    admitted = note(
        "growth is lost beside {split}, and get_memory_growth says {getter}; TensorFlow 2.21 says True",
        means="Growth is lost beside a split GPU, and get_memory_growth says so; TensorFlow 2.21 says True.",
        do=fix.export(
            "TF_FORCE_GPU_ALLOW_GROWTH",
            "true",
            "other releases of TensorFlow give no error; this keeps growth everywhere",
        ),
    )


LIMIT_MIB = 512
CPU_SPLIT = "a CPU split in two"
GPU_LIMITED = "a logical device on another GPU"


class Loss(Record):
    """A GPU with growth set while logical devices exist."""

    split: str
    """The existing logical devices, in words."""
    on: str
    """The PCI bus id of the GPU that the tensor should be on."""
    getter: bool | None
    """The result of ``get_memory_growth`` for this GPU afterwards."""
    before: MemoryUse
    """Memory after the CUDA context was made, before the first tensor."""
    first: MemoryUse
    """Memory after a tensor of 16 bytes."""
    kernel: Kernel


class Reading(probe.GpuReading):
    """The memory taken although growth was set."""

    losses: tuple[Loss, ...]
    """The measured cases; the second one needs a second GPU."""

    def figure(self) -> str:
        rises = (f"{(loss.first - loss.before) / MIB:.0f}" for loss in self.losses)
        return f"growth set, yet {' and '.join(rises)} MiB at once"

    def limits(self) -> tuple[Limit, ...]:
        return tuple(
            loss.before.plus(f"TF_PER_DEVICE_MEMORY_LIMIT_MB={LIMIT_MIB}", LIMIT_MIB * MIB, loss.on)
            for loss in self.losses
        )


def measure(ctx: Context) -> Reading:
    splits = [_beside_a_split_cpu, *([_beside_a_limited_gpu] if len(ctx.gpus) > 1 else [])]
    # Apart: TensorFlow is configured once in a process.
    return Reading(tuple(ctx.apart(partial(split, ctx), Loss, {}) for split in splits))


def _beside_a_split_cpu(ctx: Context) -> Loss:
    config, devices = ctx.tf.config, ctx.list_gpus()
    config.set_visible_devices(devices[0], "GPU")
    config.experimental.set_memory_growth(devices[0], True)
    (cpu,) = config.list_physical_devices("CPU")
    config.set_logical_device_configuration(cpu, [config.LogicalDeviceConfiguration()] * 2)
    return _take(ctx, 0, CPU_SPLIT)


def _beside_a_limited_gpu(ctx: Context) -> Loss:
    config, devices = ctx.tf.config, ctx.list_gpus()
    for device in devices:
        config.experimental.set_memory_growth(device, True)
    config.set_logical_device_configuration(devices[0], [config.LogicalDeviceConfiguration(memory_limit=64)])
    return _take(ctx, 1, GPU_LIMITED)


def _take(ctx: Context, number: int, split: str) -> Loss:
    """Let TensorFlow make its devices as configured, and put a tensor on ``GPU:number``."""
    tf, gpu = ctx.tf, ctx.gpus[number]
    tf.config.set_soft_device_placement(False)
    created = create_devices(ctx)
    with ctx.watch(gpu) as memory, tf.device(f"/GPU:{number}"):
        before = memory()
        matrix = tf.identity(tf.constant(MATRIX))
        first = memory()
        # Not before: the matrix library takes its own memory beside the pool.
        product = tf.matmul(matrix, matrix)
    getter = tf.config.experimental.get_memory_growth(tf.config.list_physical_devices("GPU")[number])
    return Loss(split, gpu.pci_bus_id, getter, before, first, ctx.verify(product, created))


def judge(reading: Reading) -> Findings:
    for loss in reading.losses:
        rise = loss.first - loss.before
        if rise <= SLACK_BYTES:
            yield Fault.kept.found(split=loss.split, taken_bytes=rise, limit_bytes=LIMIT_MIB * MIB)
        elif loss.getter is not True:
            yield Fault.admitted.found(split=loss.split, getter=str(loss.getter))
        yield from loss.kernel.verified_on(loss.on)
