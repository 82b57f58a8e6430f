"""Under `tf.device` each GPU computes with tensors of the CPU: they are copied to it unasked, and the result is right.

What it does
    Makes a matrix under `tf.device("/CPU:0")`, then multiplies it by itself under each GPU in turn, soft placement off,
    and adds the products on CPU:0 again. Nothing is copied by hand. For each step it records where the placement log
    says that the operation ran and on which device the result's memory is (`tensor.backing_device`). It also adds two
    int32 vectors on each GPU.
Why it matters
    It is the plain way to choose a device by hand, and the one to use several GPUs without a strategy. That operands
    come along by themselves makes it easy, and hides copies over the bus that cost more than the computation.
What a failure means
    `ran_elsewhere`: an operation did not run on the device that it was put on, by the log.
    `held_elsewhere`: it did, and its result is in the memory of another device.
    `wrong_sum`: the products are right; their sum on CPU:0, or one of int32 on a GPU, is wrong.
    `program_raised`: a step raised.
    `int32_on_device`: int32 values are held by the GPU; TensorFlow 2.18 to 2.21 keeps them in the host's memory. Only
    a note: a release of TensorFlow that does otherwise.
    `gpu_not_seen`, `other_gpu`, `wrong_result`: TensorFlow does not use the GPUs that it was given, or not correctly.
What to do
    Copy once, not at every use: `with tf.device("/GPU:0"): x = tf.identity(x)`. To be told of copies made unasked:
    `tf.config.experimental.set_device_policy("explicit")`. Ask `x.backing_device` where a tensor is: `x.device` says
    `GPU:0` also for an int32 tensor, which TensorFlow keeps in the host's memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from gpudiag import probe
from gpudiag.hostfacts import Facts
from gpudiag.model import Limits, Severity
from gpudiag.placement import devices_of, short_device
from gpudiag.probe import Case, Context, Judgement, Kind, Needs, Raised, Scope
from gpudiag.probes.common import GPU_NOT_SEEN, MATRIX, OTHER_GPU, WRONG_RESULT, Kernel, is_square, judge_kernel
from gpudiag.record import Record

PROBE = probe.Probe(
    needs=Needs(gpus=1),
    scope=Scope.ALL_GPUS,
    # It runs small integer operations on the CPU whatever is asked for; placement.silent_cpu tells of it.
    env={"TF_EAGER_ENABLE_SMALL_TENSOR_CPU_PINNING": None},
)

RAN_ELSEWHERE = Kind(
    "ran_elsewhere",
    Severity.FAIL,
    "{op} was put on {requested}, the log says {logged}",
    "Switch soft placement off, tf.config.set_soft_device_placement(False): the error then tells the reason.",
)
HELD_ELSEWHERE = Kind(
    "held_elsewhere",
    Severity.FAIL,
    "the result of {op} on {requested} is in the memory of {held}",
    "Trust no placement on this machine before TensorFlow was reinstalled: pip install --force-reinstall tensorflow",
)
WRONG_SUM = Kind(
    "wrong_sum",
    Severity.FAIL,
    "{op} on {requested}: the sum is wrong",
    "Trust no result of this machine. Look for errors in `nvidia-smi -q -d ECC` and `dmesg | grep Xid`.",
)
PROGRAM_RAISED = Kind(
    "program_raised",
    Severity.FAIL,
    "{op} on {requested}: {error}",
    "Look for other processes in `nvidia-smi`, and for NVRM and Xid lines in `dmesg`.",
)
INT32_ON_DEVICE = Kind(
    "int32_on_device",
    Severity.NOTE,
    "int32 values computed on {requested} are in the memory of {held}, not in the host's",
    "Do not rely on int32 tensors being in the host's memory under this release of TensorFlow.",
)

CPU = "CPU:0"


class Step(Record):
    """One operation put on a device."""

    op: str
    """Operation type: ``MatMul``, ``AddN`` or, of int32, ``AddV2``."""
    requested: str
    """The device that the program named, such as ``GPU:1``."""
    logged: tuple[str, ...] = ()
    """Devices on which the log shows the operation."""
    device: str = ""
    """What ``tensor.device`` of the result says."""
    held: str = ""
    """What its ``tensor.backing_device`` says."""
    correct: bool = False
    """True: the result equals the one known beforehand."""
    raised: Raised | None = None


class Reading(probe.Reading):
    """Every step of the program."""

    given: tuple[str, ...]
    """PCI bus ids of the GPUs that the probe was given, in the order of ``CUDA_VISIBLE_DEVICES``."""
    seen: int
    """GPUs that TensorFlow lists."""
    matrix: str = ""
    """The device that holds the operand; empty where TensorFlow lists too few GPUs."""
    products: tuple[Step, ...] = ()
    """MatMul, on each GPU in the order of TensorFlow's numbers."""
    sums: tuple[Step, ...] = ()
    """AddN, of the products on the CPU, and AddV2, of int32 on each GPU; empty where a product raised."""
    bus_ids: dict[str, str] = {}
    """TensorFlow's devices (``GPU:0``) and the PCI bus ids behind them."""

    def figure(self) -> str:
        if not self.matrix:
            return f"TensorFlow lists {self.seen} of {len(self.given)} GPUs"
        right = sum(step.correct for step in self.products)
        return f"{right} of {len(self.given)} compute tensors of {self.matrix}"


def measure(ctx: Context) -> Reading:
    tf = ctx.tf
    given = tuple(gpu.pci_bus_id for gpu in ctx.gpus)
    tf.debugging.set_log_device_placement(True)
    tf.config.set_soft_device_placement(False)
    devices = [short_device(device.name) for device in tf.config.list_logical_devices("GPU")]
    if len(devices) < len(given):
        return Reading(given, len(devices))
    with tf.device(CPU):
        matrix, vector = tf.constant(MATRIX), tf.constant([1, 2])
    results: list[Any] = []

    def step(op: str, requested: str, call: Callable[[], Any], is_right: Callable[[Any], bool]) -> Step:
        correct: list[bool] = []

        def run() -> None:
            with tf.device(requested):
                results.append(call())
            correct.append(is_right(results[-1]))

        with ctx.placements() as log:
            raised = ctx.attempt(run)
        logged = devices_of(op, log.placements)
        if raised:
            return Step(op, requested, logged, raised=raised)
        device, held = short_device(results[-1].device), short_device(results[-1].backing_device)
        return Step(op, requested, logged, device, held, correct[0])

    def twice(values: Any) -> bool:
        return bool((values.numpy() == [2, 4]).all())

    products = tuple(step("MatMul", device, lambda: tf.matmul(matrix, matrix), is_square) for device in devices)
    held = short_device(matrix.backing_device)
    if any(product.raised for product in products):
        return Reading(given, len(devices), held, products)
    addends = [*results, *results]  # of one addend TensorFlow makes no operation
    sums = [step("AddN", CPU, lambda: tf.add_n(addends), lambda total: is_square(total, float(len(addends))))]
    sums += [step("AddV2", device, lambda: tf.add(vector, vector), twice) for device in devices]
    return Reading(given, len(devices), held, products, tuple(sums), ctx.pci_bus_ids())


def judge(reading: Reading, facts: Facts, limits: Limits) -> Iterator[Judgement]:
    if reading.seen < len(reading.given):
        yield GPU_NOT_SEEN.found(seen=reading.seen, given=len(reading.given))
        return
    if reading.matrix != CPU:
        yield HELD_ELSEWHERE.found(op="tf.constant", requested=CPU, held=reading.matrix)
    for step in (*reading.products, *reading.sums):
        if step.raised:
            yield PROGRAM_RAISED.found(op=step.op, requested=step.requested, error=step.raised.brief)
        elif step.logged != (step.requested,):
            logged = ", ".join(step.logged) or "nothing of it"
            yield RAN_ELSEWHERE.found(op=step.op, requested=step.requested, logged=logged)
        elif step.op == "AddV2" and step.held != CPU:
            yield INT32_ON_DEVICE.found(requested=step.requested, held=step.held)
        elif step.op != "AddV2" and step.held != step.requested:
            yield HELD_ELSEWHERE.found(op=step.op, requested=step.requested, held=step.held)
    if all(product.correct for product in reading.products):
        for step in reading.sums:
            if not (step.raised or step.correct):
                yield WRONG_SUM.found(op=step.op, requested=step.requested)
    for expected, product in zip(reading.given, reading.products, strict=True):
        if reading.bus_ids and product.logged == (product.requested,):
            bus_id = reading.bus_ids.get(product.requested, "")
            yield from judge_kernel(Kernel(product.requested, bus_id, product.correct), expected)


_PCI = ("0000:3b:00.0", "0000:af:00.0")


def _step(op: str, requested: str, logged: str = "", held: str = "", *, correct: bool = True) -> Step:
    return Step(op, requested, (logged or requested,), requested, held or requested, correct)


_FIRST, _SECOND = _step("MatMul", "GPU:0"), _step("MatMul", "GPU:1")
_TOTAL, _INT32 = _step("AddN", CPU), _step("AddV2", "GPU:0", held=CPU)
_ERROR = Raised("InternalError", "CUDA error: launch failed")


def _case(
    name: str,
    *expect: str,
    second: Step = _SECOND,
    sums: tuple[Step, ...] = (_TOTAL, _INT32),
    matrix: str = CPU,
    bus_ids: tuple[str, ...] = _PCI,
    verified: tuple[str, ...] = _PCI,
) -> Case:
    named = dict(zip(("GPU:0", "GPU:1"), bus_ids, strict=False))
    return Case(name, expect, Reading(_PCI, 2, matrix, (_FIRST, second), sums, named), verified=verified)


CASES = (
    _case("both compute"),
    _case(
        "the second product on the first",
        RAN_ELSEWHERE.name,
        second=_step("MatMul", "GPU:1", "GPU:0"),
        verified=_PCI[:1],
    ),
    _case("an operation is not logged", RAN_ELSEWHERE.name, sums=(Step("AddN", CPU, (), CPU, CPU, True), _INT32)),
    _case("a product held by the CPU", HELD_ELSEWHERE.name, second=_step("MatMul", "GPU:1", held=CPU)),
    _case("a constant held by a GPU", HELD_ELSEWHERE.name, matrix="GPU:0"),
    _case("int32 held by the GPU", INT32_ON_DEVICE.name, sums=(_TOTAL, _step("AddV2", "GPU:0"))),
    _case("a wrong total", WRONG_SUM.name, sums=(_step("AddN", CPU, correct=False), _INT32)),
    _case("a sum raises", PROGRAM_RAISED.name, sums=(Step("AddN", CPU, raised=_ERROR),)),
    _case(
        "a product raises",
        PROGRAM_RAISED.name,
        second=Step("MatMul", "GPU:1", ("GPU:1",), raised=_ERROR),
        sums=(),
        bus_ids=(),
        verified=(),
    ),
    _case("another GPU", OTHER_GPU.name, bus_ids=(_PCI[0], _PCI[0]), verified=_PCI[:1]),
    _case("a wrong product", WRONG_RESULT.name, second=_step("MatMul", "GPU:1", correct=False), verified=_PCI[:1]),
    Case("TensorFlow lists one of two", (GPU_NOT_SEEN.name,), Reading(_PCI, 1)),
)
