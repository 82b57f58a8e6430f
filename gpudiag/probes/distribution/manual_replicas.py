"""The same product computed on every GPU, and added on the CPU, is right.

What it does
    Puts one matrix product on each GPU with `tf.device`, and adds the products on `CPU:0` with `tf.add_n`: the manual
    placement of TensorFlow's guide. With two GPUs the sum is `[[44, 56], [98, 128]]`. A single GPU is split into two
    logical devices. The GPU behind a device is known by its PCI bus id.
Why it matters
    It is the smallest program for several GPUs. It needs no strategy and no collective: if it fails, nothing that is
    built on several GPUs can work.
What to do
    `for gpu in tf.config.list_logical_devices("GPU"):` and `with tf.device(gpu.name):` for the parts, and
    `with tf.device("/CPU:0"): tf.add_n(parts)` for the sum. Call `tf.config.set_soft_device_placement(False)` first: a
    device that is not there is an error then.
"""

from __future__ import annotations

from typing import Any

from gpudiag import fix, probe
from gpudiag.knowledge.placement import short_device
from gpudiag.probe import Context, Findings, Kernel, Raised, fail
from gpudiag.probes.common import Numbers, ReplicaReading, make_replicas, numbers
from gpudiag.record import Record

PROBE = probe.Probe(needs=probe.Needs(gpus=1), scope=probe.Scope.ALL_GPUS, sampled=True)


class Fault(probe.KernelFaults):
    program_raised = fail(
        "products on {devices}, added on CPU:0, raised {error}",
        means="Products on several GPUs, added on the CPU, raised an error.",
        do=(
            fix.export("CUDA_VISIBLE_DEVICES", "GPU-...", "try each GPU alone; nvidia-smi -L lists them"),
            probe.KERNEL_LOG,
        ),
    )
    sum_elsewhere = fail(
        "the sum was put on CPU:0 and is on {device}",
        means="The sum was put on CPU:0 and is on another device.",
        do=fix.install("--force-reinstall", "tensorflow[and-cuda]", note="reinstall TensorFlow"),
    )
    wrong_sum = fail(
        "the sum of {count} products is {total}, it should be {expected}",
        means="Every product is right and their sum is not: data was lost on the way to the CPU.",
        do=probe.trust_no("result of these GPUs together"),
    )


LEFT = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
RIGHT = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
PRODUCT = (22.0, 28.0, 49.0, 64.0)
"""The expected product, row by row."""


class ReplicaSum(Record):
    """The sum of all products."""

    parts: tuple[Kernel, ...]
    """The product of each GPU, in the order of TensorFlow's numbers."""
    total: Numbers
    device: str
    """The device that holds the sum."""


class Reading(ReplicaReading):
    """The products that the GPUs computed, and their sum."""

    sum: ReplicaSum | None
    """The sum; None if the program raised."""
    raised: Raised | None

    def figure(self) -> str:
        if self.sum is None:
            return self.where
        return f"sum {_matrix(self.sum.total)} from {self.where}"


def measure(ctx: Context) -> Reading:
    tf = ctx.tf
    made = make_replicas(ctx)
    sums: list[ReplicaSum] = []

    def program() -> None:
        parts: list[Any] = []
        for device in made:
            with tf.device(device):
                parts.append(tf.matmul(tf.constant(LEFT), tf.constant(RIGHT)))
        with tf.device("/CPU:0"):
            total = tf.add_n(parts)
        kernels = []
        for part in parts:
            device = short_device(part.device)
            kernels.append(Kernel(device, made.get(device, ""), numbers(part) == PRODUCT))
        sums.append(ReplicaSum(tuple(kernels), numbers(total), short_device(total.device)))

    raised = ctx.attempt(program)
    return Reading(sums[0] if sums else None, raised, made=made)


def _matrix(values: Numbers) -> str:
    first, second, third, fourth = ("NaN" if value is None else f"{value:g}" for value in values)
    return f"[[{first}, {second}], [{third}, {fourth}]]"


def judge(reading: Reading) -> Findings:
    result = reading.sum
    if reading.raised is not None:
        yield Fault.program_raised.found(devices=", ".join(reading.made), error=reading.raised.brief)
    if result is None:
        return
    for part, pci_bus_id in zip(result.parts, reading.expected, strict=True):
        yield from part.verified_on(pci_bus_id)
    if result.device != "CPU:0":
        yield Fault.sum_elsewhere.found(device=result.device)
    expected = tuple(value * len(result.parts) for value in PRODUCT)
    if result.total != expected and all(part.correct for part in result.parts):
        yield Fault.wrong_sum.found(count=len(result.parts), total=_matrix(result.total), expected=_matrix(expected))
