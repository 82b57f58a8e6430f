"""Under `tf.device` each GPU computes with tensors of the CPU: they are copied automatically, with a right result.

What it does
    Makes a matrix under `tf.device("/CPU:0")`, then multiplies it by itself under each GPU in turn, soft placement off,
    and adds the products on CPU:0 again. Nothing is copied by hand. For each step it records where the placement log
    says that the operation ran and on which device the result's memory is (`tensor.backing_device`). It also adds two
    int32 vectors on each GPU.
Why it matters
    It is the plain way to choose a device by hand, and the one to use several GPUs without a strategy. Automatic copies
    of the operands make it easy, and hide transfers over the bus that cost more than the computation.
What to do
    Copy once, not at every use: `with tf.device("/GPU:0"): x = tf.identity(x)`. To get an error at a copy:
    `tf.config.experimental.set_device_policy("explicit")`. `x.backing_device` is the device that has a tensor;
    `x.device` says `GPU:0` also for an int32 tensor, which TensorFlow keeps in the host's memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpudiag import fix, probe
from gpudiag.knowledge.placement import devices_of, short_device
from gpudiag.probe import Context, Findings, Kernel, Raised, fail, note
from gpudiag.probes.common import MATRIX, is_square
from gpudiag.record import Record

PROBE = probe.Probe(
    needs=probe.Needs(gpus=1),
    scope=probe.Scope.ALL_GPUS,
    # It runs small integer operations on the CPU whatever is asked for; see placement.silent_cpu.
    env={"TF_EAGER_ENABLE_SMALL_TENSOR_CPU_PINNING": None},
)


class Fault(probe.KernelFaults):
    ran_elsewhere = fail(
        "{op} was put on {requested}, the log says {logged}",
        means="The placement log names another device than tf.device.",
        do=fix.edit("tf.config.set_soft_device_placement(False)", "the error then says the reason"),
    )
    held_elsewhere = fail(
        "the result of {op} on {requested} is in the memory of {held}",
        means="The result of an operation is in the memory of another device than tf.device names.",
        do=fix.install(
            "--force-reinstall", "tensorflow", note="trust no placement here until TensorFlow is reinstalled"
        ),
    )
    wrong_sum = fail(
        "{op} on {requested}: the sum is wrong",
        means="The products are right; their sum on CPU:0, or one of int32 on a GPU, is wrong.",
        do=probe.trust_no("result of this machine"),
    )
    program_raised = fail(
        "{op} on {requested}: {error}",
        means="A step raised.",
        do=probe.LOOK,
    )
    int32_on_device = note(
        "int32 values computed on {requested} are in the memory of {held}, not in the host's",
        means="int32 values computed on a GPU are in its memory, not in the host's.",
        do="Do not rely on int32 tensors being in the host's memory under this release of TensorFlow.",
    )


CPU = "CPU:0"


class PlacedOperation(Record):
    """An operation placed on a device."""

    op: str
    """The type of the operation: ``MatMul``, ``AddN`` or, for int32, ``AddV2``."""
    requested: str
    """The device that the program named, such as ``GPU:1``."""
    logged: tuple[str, ...] = ()
    """Devices on which the log shows the operation."""
    device: str = ""
    """The value of the result's ``tensor.device``."""
    held: str = ""
    """The value of the result's ``tensor.backing_device``."""
    correct: bool = False
    """True if the result equals the known one."""
    raised: Raised | None = None


class Reading(probe.GpuReading):
    """Every step of the program."""

    matrix: str
    """The device that holds the operand."""
    products: tuple[PlacedOperation, ...]
    """MatMul, on each GPU in the order of TensorFlow's numbers."""
    sums: tuple[PlacedOperation, ...] = ()
    """AddN of the products on the CPU, and AddV2 of int32 on each GPU; empty if a product raised."""
    bus_ids: dict[str, str] = {}
    """TensorFlow's devices (``GPU:0``) with the PCI bus ids behind them."""

    def figure(self) -> str:
        right = sum(step.correct for step in self.products)
        return f"{right} of {len(self.given)} compute tensors of {self.matrix}"


def measure(ctx: Context) -> Reading:
    tf = ctx.tf
    tf.debugging.set_log_device_placement(True)
    tf.config.set_soft_device_placement(False)
    devices = ctx.make_gpus()
    with tf.device(CPU):
        matrix, vector = tf.constant(MATRIX), tf.constant([1, 2])
    results: list[Any] = []

    def step(op: str, requested: str, call: Callable[[], Any], is_right: Callable[[Any], bool]) -> PlacedOperation:
        correct: list[bool] = []

        def run() -> None:
            with tf.device(requested):
                results.append(call())
            correct.append(is_right(results[-1]))

        with ctx.placements() as log:
            raised = ctx.attempt(run)
        logged = devices_of(op, log.placements)
        if raised:
            return PlacedOperation(op, requested, logged, raised=raised)
        device, held = short_device(results[-1].device), short_device(results[-1].backing_device)
        return PlacedOperation(op, requested, logged, device, held, correct[0])

    def twice(values: Any) -> bool:
        return bool((values.numpy() == [2, 4]).all())

    products = tuple(step("MatMul", device, lambda: tf.matmul(matrix, matrix), is_square) for device in devices)
    held = short_device(matrix.backing_device)
    if any(product.raised for product in products):
        return Reading(held, products)
    addends = [*results, *results]  # of one addend TensorFlow makes no operation
    sums = [step("AddN", CPU, lambda: tf.add_n(addends), lambda total: is_square(total, float(len(addends))))]
    sums += [step("AddV2", device, lambda: tf.add(vector, vector), twice) for device in devices]
    return Reading(held, products, tuple(sums), ctx.pci_bus_ids())


def judge(reading: Reading) -> Findings:
    if reading.matrix != CPU:
        yield Fault.held_elsewhere.found(op="tf.constant", requested=CPU, held=reading.matrix)
    for step in (*reading.products, *reading.sums):
        if step.raised:
            yield Fault.program_raised.found(op=step.op, requested=step.requested, error=step.raised.brief)
        elif step.logged != (step.requested,):
            logged = ", ".join(step.logged) or "nothing of it"
            yield Fault.ran_elsewhere.found(op=step.op, requested=step.requested, logged=logged)
        elif step.op == "AddV2" and step.held != CPU:
            yield Fault.int32_on_device.found(requested=step.requested, held=step.held)
        elif step.op != "AddV2" and step.held != step.requested:
            yield Fault.held_elsewhere.found(op=step.op, requested=step.requested, held=step.held)
    if all(product.correct for product in reading.products):
        for step in reading.sums:
            if not (step.raised or step.correct):
                yield Fault.wrong_sum.found(op=step.op, requested=step.requested)
    for expected, product in zip(reading.given, reading.products, strict=True):
        if reading.bus_ids and product.logged == (product.requested,):
            bus_id = reading.bus_ids.get(product.requested, "")
            yield from Kernel(product.requested, bus_id, product.correct).verified_on(expected)
