"""Operations requested on a GPU run there, except those for which TensorFlow is known to have no GPU kernel.

What it does
    Runs small operations of many kinds eagerly under `tf.device("/GPU:0")`, soft placement on, and reads from the
    placement log where each one ran and from `tensor.backing_device` where its result is. Among them are six that
    TensorFlow 2.18 to 2.21 computes on the CPU alone (matrix products of integers, the difference of two lists,
    shuffling, texts) and one asked for on `/GPU:99`, which falls to `GPU:0`. What ran on the CPU is asked for again
    with soft placement off, for the reason.
Why it matters
    Nothing is said when an operation asked for on a GPU runs on the CPU, and each one costs two copies over the bus: a
    single one in a training step can cost more than the step. No documentation mentions operations that have a GPU
    kernel and still run on the CPU.
What to do
    Find such operations in your own program with `tf.debugging.set_log_device_placement(True)` right after the import,
    or make them errors: `tf.config.set_soft_device_placement(False)`. Use another type, `tf.cast(x, tf.float32)`, or
    put the operation into the input pipeline, `dataset.map(...)`, which runs on the CPU beside the GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpudiag import fix, probe
from gpudiag.knowledge.placement import devices_of, short_device
from gpudiag.model.facts import Facts
from gpudiag.probe import Context, Findings, Raised, fail, note, warn
from gpudiag.probes.common import MATRIX, SQUARE
from gpudiag.record import Record

PROBE = probe.Probe(needs=probe.Needs(gpus=1), scope=probe.Scope.ALL_GPUS)


class Fault(probe.GpuFaults):
    ran_elsewhere = warn(
        "{op} of {dtype}, asked for on {requested}, ran on {logged} silently. Soft placement off: {reason}",
        means="An operation that has a GPU kernel in TensorFlow 2.18 to 2.21 ran on another device.",
        do=fix.install(
            "--force-reinstall", "tensorflow[and-cuda]", note="reinstall TensorFlow if it is not the official one"
        ),
    )
    pinned = note(
        "{op} of {dtype}, asked for on {requested}, ran on {logged}: TF_EAGER_ENABLE_SMALL_TENSOR_CPU_PINNING is set",
        means=(
            "Integer operations did, and `TF_EAGER_ENABLE_SMALL_TENSOR_CPU_PINNING` is set, which runs small "
            "ones on the CPU, also with soft placement off. Only a note."
        ),
        do=fix.unset("TF_EAGER_ENABLE_SMALL_TENSOR_CPU_PINNING"),
    )
    held_elsewhere = warn(
        "{op} of {dtype}, asked for on {requested}, ran on {logged}, and its result is in the memory of {held}",
        means="Only results of int32 are in the host's memory after an operation on a GPU.",
        do=fix.install(
            "--force-reinstall", "tensorflow[and-cuda]", note="reinstall TensorFlow if it is not the official one"
        ),
    )
    raised_instead = fail(
        "{op} of {dtype}, asked for on {requested}: {error}",
        means="An operation that has no kernel for the GPU raised an error, and should run on the CPU.",
        do=probe.LOOK,
    )
    not_logged = fail(
        "{op} of {dtype}, asked for on {requested}: the placement log does not show it",
        means="The placement log does not show an operation that was asked for on a GPU.",
        do="Use a release of TensorFlow whose log gpudiag reads (2.18 to 2.21).",
    )
    wrong_value = fail(
        "{op} of {dtype}, asked for on {requested}: the result computed on {logged} is {result}, not {expected}",
        means="The result of an operation that ran on the CPU in place of a GPU is wrong.",
        do=probe.trust_no("result of this machine"),
    )


GPU, CPU = "GPU:0", "CPU:0"
MISSING = "GPU:99"
VARIABLE = "TF_EAGER_ENABLE_SMALL_TENSOR_CPU_PINNING"


class RequestedOperation(Record):
    """An operation that the probe requests on a GPU."""

    op: str
    """The type of the operation, such as ``MatMul``."""
    dtype: str
    """The type of the operands."""
    expected: list[Any]
    """The right result of the operation."""
    runs_on: str = GPU
    """The device on which TensorFlow 2.18 to 2.21 runs the operation."""
    requested: str = GPU

    @property
    def key(self) -> tuple[str, str, str]:
        return self.op, self.dtype, self.requested


_NUMBERS = ("float32", "float64", "float16", "int64", "int32")
_DOUBLED = [[2.0, 4.0], [6.0, 8.0]]

# Measured on 2.21.0 on simulated GPUs, where the list of GPU kernels is the wheel's own.
OPERATIONS = (
    RequestedOperation("MatMul", "float32", SQUARE),
    RequestedOperation("MatMul", "float32", SQUARE, requested=MISSING),
    RequestedOperation("MatMul", "float64", SQUARE),
    RequestedOperation("MatMul", "float16", SQUARE),
    RequestedOperation("MatMul", "int64", SQUARE, CPU),
    RequestedOperation("MatMul", "int32", SQUARE, CPU),
    RequestedOperation("AddV2", "float32", _DOUBLED),
    RequestedOperation("AddV2", "int64", _DOUBLED),
    RequestedOperation("AddV2", "int32", _DOUBLED),
    RequestedOperation("Relu", "float32", MATRIX),
    RequestedOperation("Sum", "float32", [[10.0]]),
    RequestedOperation("GatherV2", "float32", [[3.0, 4.0]]),
    RequestedOperation("TopKV2", "float32", [[2.0], [4.0]]),
    RequestedOperation("Where", "float32", [[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]),
    RequestedOperation("Unique", "float32", [1.0, 2.0, 3.0, 4.0]),
    RequestedOperation("ListDiff", "float32", [1.0, 2.0, 3.0], CPU),
    RequestedOperation("RandomShuffle", "float32", [7.0, 7.0, 7.0, 7.0], CPU),
    RequestedOperation("AsString", "float32", [["1", "2"], ["3", "4"]], CPU),
    RequestedOperation("StringLength", "string", [5.0], CPU),
)


class OperationResult(Record):
    """The result of one operation."""

    op: str
    dtype: str
    requested: str
    """The device that the program named."""
    logged: tuple[str, ...] = ()
    """The devices on which the log shows the operation."""
    held: str = ""
    """The result's ``tensor.backing_device``; for int32 it is the host's memory, ``CPU:0``."""
    result: str = ""
    """The values of the result as Python writes them, numbers as floats: a wrong one can be an infinity, which JSON
    lacks."""
    raised: Raised | None = None
    hard: Raised | None = None
    """The error with soft placement off; tried only if the operation did not run on a GPU."""

    @property
    def key(self) -> tuple[str, str, str]:
        return self.op, self.dtype, self.requested


class Reading(probe.GpuReading):
    """The device of each operation."""

    runs: tuple[OperationResult, ...]

    def figure(self) -> str:
        on_gpu, on_cpu = (sum(run.logged == (device,) for run in self.runs) for device in (GPU, CPU))
        return f"of {len(self.runs)} operations {on_gpu} ran on {GPU}, {on_cpu} on {CPU}"


def measure(ctx: Context) -> Reading:
    tf = ctx.tf
    tf.debugging.set_log_device_placement(True)
    ctx.make_gpus()
    with tf.device(GPU):
        matrices = {dtype: tf.constant([[1, 2], [3, 4]], dtype) for dtype in _NUMBERS}
        vector, sevens, text = tf.constant([1.0, 2.0, 3.0, 4.0]), tf.constant([7.0] * 4), tf.constant(["seven"])
    programs: dict[str, Callable[[str], Any]] = {
        "MatMul": lambda dtype: tf.matmul(matrices[dtype], matrices[dtype]),
        "AddV2": lambda dtype: tf.add(matrices[dtype], matrices[dtype]),
        "Relu": lambda dtype: tf.nn.relu(matrices[dtype]),
        "Sum": lambda dtype: tf.reduce_sum(matrices[dtype], keepdims=True),
        "GatherV2": lambda dtype: tf.gather(matrices[dtype], [1]),
        "TopKV2": lambda dtype: tf.math.top_k(matrices[dtype], 1).values,
        "Where": lambda dtype: tf.where(matrices[dtype]),
        "Unique": lambda dtype: tf.unique(vector).y,
        "ListDiff": lambda dtype: tf.raw_ops.ListDiff(x=vector, y=[4.0]).out,
        "RandomShuffle": lambda dtype: tf.random.shuffle(sevens, seed=7),  # TF_DETERMINISTIC_OPS asks for one
        "AsString": lambda dtype: tf.strings.as_string(matrices[dtype], precision=0),
        "StringLength": lambda dtype: tf.strings.length(text),
    }

    def run(asked: RequestedOperation) -> OperationResult:
        results: list[Any] = []

        def call() -> None:
            with tf.device(asked.requested):
                results.append(programs[asked.op](asked.dtype))

        tf.config.set_soft_device_placement(True)
        with ctx.placements() as log:
            raised = ctx.attempt(call)
        logged = devices_of(asked.op, log.placements)
        values: list[str] = []
        kind = "U" if asked.op == "AsString" else "float64"
        raised = raised or ctx.attempt(lambda: values.append(str(results[0].numpy().astype(kind).tolist())))
        if raised:
            return OperationResult(*asked.key, logged, raised=raised)
        tf.config.set_soft_device_placement(False)
        hard = None if all(device.startswith("GPU:") for device in logged) else ctx.attempt(call)
        return OperationResult(*asked.key, logged, short_device(results[0].backing_device), values[0], hard=hard)

    return Reading(tuple(run(asked) for asked in OPERATIONS))


def judge(reading: Reading, facts: Facts) -> Findings:
    known = {asked.key: asked for asked in OPERATIONS}
    for run in reading.runs:
        asked = known[run.key]
        what = {"op": run.op, "dtype": run.dtype, "requested": run.requested}
        logged = ", ".join(run.logged)
        if run.raised:
            yield Fault.raised_instead.found(**what, error=run.raised.brief)
            continue
        if run.result != str(asked.expected):
            on = logged or "an unknown device"
            yield Fault.wrong_value.found(**what, logged=on, result=run.result, expected=str(asked.expected))
        if not run.logged:
            yield Fault.not_logged.found(**what)
        elif asked.runs_on == GPU and run.logged != (GPU,):
            if VARIABLE in facts.variables and run.dtype.startswith("int"):
                yield Fault.pinned.found(**what, logged=logged)
            else:
                yield Fault.ran_elsewhere.found(
                    **what, logged=logged, reason=run.hard.brief if run.hard else "no error"
                )
        elif asked.runs_on == GPU and run.dtype != "int32" and run.held != GPU:
            yield Fault.held_elsewhere.found(**what, logged=logged, held=run.held)
