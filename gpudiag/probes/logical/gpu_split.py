"""A GPU split into two logical devices computes on both, within their limits, and later GPUs shift by one number.

What it does
    Splits the first GPU into two logical devices of 128 MiB each and gives every other GPU one. On each logical device
    it makes a small tensor, which takes the device's whole limit, and a matrix product; on `GPU:0` it asks for twice
    the limit. Which GPU is behind a logical device is taken from two sources: the PCI bus id in TensorFlow's
    `Created device` line, and the GPU whose memory rose by NVML.
Why it matters
    Logical devices are how one GPU is shared within a program, and how code for several GPUs is tested on one. They
    shift the numbers: with the first GPU split in two, the second GPU is `GPU:2`, and code that says `GPU:1` computes
    on the first.
What to do
    Call `tf.config.set_logical_device_configuration(gpu, [...])` right after the import, with a `memory_limit` in MiB
    for each part. Name devices by `tf.config.list_logical_devices("GPU")` and never by a number written in the source.
"""

from __future__ import annotations

from typing import Any

from gpudiag import fix, probe
from gpudiag.probe import MIB, SLACK_BYTES, Context, Findings, Raised, Work, fail, mib
from gpudiag.probes.common import MATRIX, LimitFaults, create_devices, rises, without_allocation_retry

PROBE = probe.Probe(
    needs=probe.Needs(gpus=1, free_bytes=256 * MIB),
    scope=probe.Scope.ALL_GPUS,
    sampled=True,
    exclusive=True,
)


class Fault(probe.KernelFaults):
    wrong_count = fail(
        "TensorFlow made {count} logical GPUs, {wanted} were asked for",
        means="TensorFlow made another number of logical GPUs than was asked for.",
        do=fix.edit("tf.config.set_logical_device_configuration(gpu, [...])", "the first call after the import"),
    )
    memory_elsewhere = fail(
        "the first tensor on {device} raised the memory of {most} by {most_bytes} and that of {pci_bus_id} by "
        "{taken_bytes}",
        means="The first tensor on a logical GPU took memory of another GPU.",
        do=(
            fix.nvidia_smi("run it beside the program, to see where the memory went"),
            fix.note("choose GPUs by UUID in CUDA_VISIBLE_DEVICES", kind=fix.Kind.SET_VARIABLE),
        ),
    )
    limit_ignored = fail(
        "{device} took or gave out {taken_bytes}, its limit is {limit_bytes}",
        means="A logical GPU took or gave out more than its limit.",
        do=fix.export(
            "CUDA_VISIBLE_DEVICES", "GPU-..", "do not share this GPU between programs by limits; give each its own"
        ),
    )
    not_at_once = LimitFaults.not_at_once
    other_error = LimitFaults.other_error


LIMIT_BYTES = 128 * MIB
BEYOND_BYTES = 2 * LIMIT_BYTES


class Reading(probe.GpuReading):
    """The logical devices of the split GPU."""

    parts: tuple[Work, ...]
    """The first tensor and a product of each logical device, in the order of TensorFlow's numbers."""
    exceeded: Raised | None
    """The error that requesting :data:`BEYOND_BYTES` on ``GPU:0`` raised."""

    def figure(self) -> str:
        return f"{len(self.parts)} logical devices on {len(self.given)} GPUs, limit {mib(LIMIT_BYTES)} each"


def measure(ctx: Context) -> Reading:
    tf = ctx.tf
    without_allocation_retry(ctx)
    for number, device in enumerate(ctx.list_gpus()):
        limit = tf.config.LogicalDeviceConfiguration(memory_limit=LIMIT_BYTES // MIB)
        tf.config.set_logical_device_configuration(device, [limit] * (2 if number == 0 else 1))
    tf.config.set_soft_device_placement(False)
    created = create_devices(ctx)
    matrices: list[Any] = []
    rose = []
    for name in created:
        with tf.device(name):
            rose.append(rises(ctx, lambda: matrices.append(tf.identity(tf.constant(MATRIX)))))
    with tf.device("GPU:0"):
        exceeded = ctx.attempt(lambda: tf.zeros([BEYOND_BYTES // 4]))
    parts = []
    # Last: the matrix library takes its own memory beside the limits.
    for name, matrix, risen in zip(created, matrices, rose, strict=True):
        with tf.device(name):
            product = tf.matmul(matrix, matrix)
        parts.append(Work(ctx.verify(product, created), risen))
    return Reading(tuple(parts), exceeded)


def judge(reading: Reading) -> Findings:
    expected = (reading.given[0], *reading.given)
    if len(reading.parts) != len(expected):
        yield Fault.wrong_count.found(count=len(reading.parts), wanted=len(expected))
        return
    for part, pci_bus_id in zip(reading.parts, expected, strict=True):
        most = max(part.rose, key=lambda bus_id: part.rose[bus_id])
        rose, device = part.rose[most], part.kernel.device
        if part.kernel.pci_bus_id == pci_bus_id and most != pci_bus_id:
            yield Fault.memory_elsewhere.found(
                device=device, most=most, most_bytes=rose, pci_bus_id=pci_bus_id, taken_bytes=part.rose[pci_bus_id]
            )
            continue
        yield from part.kernel.verified_on(pci_bus_id)
        if rose > LIMIT_BYTES + SLACK_BYTES:
            yield Fault.limit_ignored.found(device=device, taken_bytes=rose, limit_bytes=LIMIT_BYTES)
        elif rose < LIMIT_BYTES - SLACK_BYTES:
            yield Fault.not_at_once.found(device=device, taken_bytes=rose, limit_bytes=LIMIT_BYTES)
    if reading.exceeded is None:
        yield Fault.limit_ignored.found(device="GPU:0", taken_bytes=BEYOND_BYTES, limit_bytes=LIMIT_BYTES)
    elif reading.exceeded.type != "ResourceExhaustedError":
        yield Fault.other_error.found(
            device="GPU:0", beyond_bytes=BEYOND_BYTES, limit_bytes=LIMIT_BYTES, error=reading.exceeded.brief
        )
