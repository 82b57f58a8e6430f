"""`visible_device_list` maps GPUs to TensorFlow's device numbers in the order of the list.

What it does
    Opens a `tf.compat.v1.Session` whose list names the visible GPUs in reverse, so that the last becomes `GPU:0`. On
    each device it computes a matrix product and fills a tensor of 64 MiB. Which GPU is behind a device is taken from
    two sources: the PCI bus id in TensorFlow's `Created device` line, and the GPU whose memory rose by NVML.
Why it matters
    The list is how a program picks GPUs, and in which order, from within. A list that is ignored puts two programs on
    one GPU, and neither gets an error.
What to do
    Set the list in the first session of the process. In TensorFlow 2 `tf.config.set_visible_devices` hides GPUs and
    does not reorder them; to reorder, `export CUDA_VISIBLE_DEVICES=1,0` before the start.
"""

from __future__ import annotations

from functools import partial

from gpudiag import probe
from gpudiag.knowledge.placement import created_devices, short_device
from gpudiag.knowledge.variables import FORCE_GROWTH
from gpudiag.model.facts import Facts
from gpudiag.probe import FILLED_BYTES, MIB, Context, Findings, Kernel, Work, note
from gpudiag.probes.common import MATRIX, is_square, rises

PROBE = probe.Probe(
    needs=probe.Needs(gpus=1, free_bytes=256 * MIB),
    scope=probe.Scope.ALL_GPUS,
    sampled=True,
    exclusive=True,
    # The list is under test. Without growth the session would take nearly all memory of every GPU.
    env={FORCE_GROWTH: "true"},
)


class Fault(probe.WorkFaults):
    one_gpu = note(
        "with one GPU the order of visible_device_list cannot be shown; GPU:0 is {pci_bus_id}",
        means="With one GPU the order of visible_device_list cannot be shown.",
        do="{how}",
    )


class Reading(probe.GpuReading):
    """The GPU behind each device."""

    visible_device_list: str
    """The list that the session was given."""
    devices: tuple[Work, ...]
    """The work on each device, in the order of TensorFlow's numbers."""

    def figure(self) -> str:
        first = self.devices[0].kernel
        return f"{self.visible_device_list!r}: {first.device} is {first.pci_bus_id}"


def measure(ctx: Context) -> Reading:
    tf, v1 = ctx.tf, ctx.tf.compat.v1
    visible_device_list = ",".join(str(index) for index in reversed(range(len(ctx.gpus))))
    ctx.list_gpus()
    devices = []
    options = v1.GPUOptions(visible_device_list=visible_device_list)
    with tf.Graph().as_default():
        matrix, elements = v1.placeholder(tf.float32, [2, 2]), v1.placeholder(tf.int32, [1])
        with ctx.placements() as log:
            session = v1.Session(config=v1.ConfigProto(gpu_options=options))
        created = created_devices(log.lines)
        with session:
            for index in range(len(ctx.gpus)):
                with tf.device(f"/GPU:{index}"):
                    product = tf.matmul(matrix, matrix)
                    large = tf.fill(elements, 1.0)[0]
                device = short_device(product.device)
                correct = is_square(session.run(product, {matrix: MATRIX}))
                # The tensor is freed afterwards; TensorFlow's pool keeps the memory.
                rose = rises(ctx, partial(session.run, large, {elements: [FILLED_BYTES // 4]}))
                devices.append(Work(Kernel(device, created.get(device, ""), correct), rose))
    return Reading(visible_device_list, tuple(devices))


def judge(reading: Reading, facts: Facts) -> Findings:
    if len(reading.given) == 1:
        whole = [device.uuid for device in facts.nvml_devices if not device.mig_uuids]
        both = f"Run it with two GPUs in scope: export CUDA_VISIBLE_DEVICES={','.join(whole[:2])}"
        how = both if len(whole) > 1 else "Nothing to fix: only a second GPU, not in MIG mode, can show it."
        yield Fault.one_gpu.found(pci_bus_id=reading.given[0], how=how)
    for device, expected in zip(reading.devices, reversed(reading.given), strict=True):
        yield from device.verified_on(expected)
