"""Soft placement off distinguishes the three causes of an operation that runs elsewhere than requested.

What it does
    Asks for operations on a GPU that cannot run there, for each of the three causes, eagerly and inside `tf.function`:
    a *missing device* (MatMul under `/GPU:99`), *no kernel* (MatMul of int64 under `/GPU:0`, which TensorFlow computes
    on the CPU alone) and a *CPU resource* (under `/GPU:0`, a write to a variable and, eagerly, a look-up in a hash
    table and a step of a dataset's iterator, all of which live on CPU:0). With soft placement on it reads from the
    placement log where each one ran. Then it does the same with soft placement off, which shows the cause: the error
    says that there is no such device, or that the device has no kernel, or there is no error at all.
Why it matters
    From outside the three look alike: an operation does not run where it was requested. Each has a different fix. Soft
    placement off does not protect from the third: operations follow the resource that they use, without an error.
What to do
    Run the program once under `tf.config.set_soft_device_placement(False)`. "Unable to find any devices" or "Could not
    satisfy device specification" for a device that is not in the list of available ones: name one that
    `tf.config.list_logical_devices()` lists. "no supported kernel", or a device that is in that list: use another type
    or operation, or put it on the CPU yourself. No error: make the variable, table or iterator under the same
    `with tf.device("/GPU:0"):` as its user. Believe the placement log and not `result.device`: a `tf.function` that
    runs under `/GPU:0` says `GPU:0` for a result computed on the CPU.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import count
from typing import Any

from gpudiag import probe
from gpudiag.knowledge.placement import devices_of, short_device
from gpudiag.probe import Context, Findings, Raised, fail, note, warn
from gpudiag.probes.common import MATRIX, is_square
from gpudiag.record import Record

PROBE = probe.Probe(
    needs=probe.Needs(gpus=1),
    scope=probe.Scope.ALL_GPUS,
    # It runs small integer operations on the CPU for a fourth cause; see placement.silent_cpu.
    env={"TF_EAGER_ENABLE_SMALL_TENSOR_CPU_PINNING": None},
)


class Fault(probe.GpuFaults):
    cause_not_told = warn(
        "{what}: soft placement off does not show that the cause is: {cause}. It gave {happened}",
        means="With soft placement off, the error does not say why an operation cannot run on the GPU.",
        do="Do not distinguish causes by the error's text under this release of TensorFlow; read the placement log.",
    )
    fell_elsewhere = note(
        "{what} ({cause}): it ran on {logged}, TensorFlow 2.18 to 2.21 runs it on {expected}",
        means=(
            "The operation fell back to another device than in TensorFlow 2.18 to 2.21: to `GPU:0`, not the "
            "CPU, from a missing device, and to `CPU:0` for the other causes. Only a note: a release that has "
            "a kernel more, say."
        ),
        do="Look in the placement log where operations run: tf.debugging.set_log_device_placement(True)",
    )
    raised_instead = fail(
        "{what} ({cause}): an error instead of a fallback: {error}",
        means="An operation that should fall back to another device raised an error.",
        do="Switch soft placement on before the first operation: tf.config.set_soft_device_placement(True)",
    )
    not_logged = fail(
        "{what}: the placement log does not show it",
        means="The placement log does not show an operation that fell back to another device.",
        do="Use a release of TensorFlow whose log gpudiag reads (2.18 to 2.21).",
    )
    wrong_result = fail(
        "{what}: the result computed on {logged} is wrong",
        means="The result of an operation that fell back to another device is wrong.",
        do="Trust no result of this machine. Look for errors in `nvidia-smi -q -d ECC` and `dmesg | grep Xid`.",
    )


GPU, CPU = "GPU:0", "CPU:0"
MISSING_DEVICE, NO_KERNEL, CPU_RESOURCE = "missing device", "no kernel", "CPU resource"
FALLS_TO = {MISSING_DEVICE: GPU, NO_KERNEL: CPU, CPU_RESOURCE: CPU}

_AVAILABLE = re.compile(r"All available devices \[([^\[\]]*)\]")


class OperationCall(Record):
    """One call of the operation."""

    logged: tuple[str, ...] = ()
    """The devices on which the log shows the operation, such as ``CPU:0``."""
    device: str = ""
    """The value of ``result.device``; empty if the call raised."""
    correct: bool = False
    """True if the result equals the known one."""
    raised: Raised | None = None


class FallbackOperation(Record):
    """An operation that cannot run on the requested device."""

    cause: str
    """Why the operation cannot run there: ``missing device``, ``no kernel`` or ``CPU resource``."""
    mode: str
    """``eager`` or ``tf.function``."""
    op: str
    """The type of the operation, such as ``MatMul``."""
    requested: str
    """The device that the program named, such as ``GPU:99``."""
    soft: OperationCall
    """The call with soft placement on."""
    hard: OperationCall
    """The call with soft placement off."""

    @property
    def what(self) -> str:
        """The operation, its requested device and mode, in words."""
        return f"{self.op} under /{self.requested}, {self.mode}"

    @property
    def told(self) -> str:
        """The cause that the error with soft placement off shows; empty if it shows none."""
        if self.hard.raised is None:
            return CPU_RESOURCE if self.hard.logged == (CPU,) else ""
        text = self.hard.raised.message
        # Eager placement words both causes alike and adds what there is; the placer has a text for each (2.21.0).
        if found := _AVAILABLE.search(text):
            there = {short_device(name.strip()) for name in found[1].split(",")}
            return NO_KERNEL if self.requested in there else MISSING_DEVICE
        if "no supported kernel for" in text:
            return NO_KERNEL
        return MISSING_DEVICE if "Unable to find any devices for spec" in text else ""


class Reading(probe.GpuReading):
    """The results of all operations."""

    runs: tuple[FallbackOperation, ...]

    def figure(self) -> str:
        missed = {run.cause for run in self.runs if run.told != run.cause}
        return f"{len(FALLS_TO) - len(missed)} of {len(FALLS_TO)} causes distinguished"


def measure(ctx: Context) -> Reading:
    tf = ctx.tf
    tf.debugging.set_log_device_placement(True)
    ctx.make_gpus()
    with tf.device(CPU):
        floats, integers = tf.constant(MATRIX), tf.constant([[1, 2], [3, 4]], tf.int64)
        scalar, key = tf.constant(1.0), tf.constant(7, tf.int64)
        variable = tf.Variable(0.0)
        table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer([key], [70.0]), 0.0)
        numbers = iter(tf.data.Dataset.range(100))
    writes, steps = count(1), count()

    def write() -> Any:
        variable.assign_add(scalar)
        return variable.read_value()

    # Cause, operation type, device; the program, and whether its result is right.
    programs: tuple[tuple[str, str, str, Callable[[], Any], Callable[[Any], bool]], ...] = (
        (MISSING_DEVICE, "MatMul", "GPU:99", lambda: tf.matmul(floats, floats), is_square),
        (NO_KERNEL, "MatMul", GPU, lambda: tf.matmul(integers, integers), is_square),
        (CPU_RESOURCE, "AssignAddVariableOp", GPU, write, lambda value: bool(value.numpy() == next(writes))),
        (CPU_RESOURCE, "LookupTableFindV2", GPU, lambda: table.lookup(key), lambda found: bool(found.numpy() == 70)),
        (CPU_RESOURCE, "IteratorGetNext", GPU, lambda: next(numbers), lambda step: bool(step.numpy() == next(steps))),
    )

    def attempt(
        mode: str, op: str, requested: str, program: Callable[[], Any], is_right: Callable[[Any], bool], *, soft: bool
    ) -> OperationCall:
        tf.config.set_soft_device_placement(soft)

        def run() -> Any:
            with tf.device(requested):
                return program()

        call = tf.function(run, autograph=False) if mode == "tf.function" else run
        results: list[Any] = []
        with ctx.placements() as log:
            raised = ctx.attempt(lambda: results.append(call()))
        logged = devices_of(op, log.placements)
        if raised:
            return OperationCall(logged, raised=raised)
        return OperationCall(logged, short_device(results[0].device), is_right(results[0]))

    runs = []
    for mode in ("eager", "tf.function"):
        # A function is traced each time: one resource stands for all.
        for cause, op, requested, program, is_right in programs if mode == "eager" else programs[:3]:
            soft, hard = (attempt(mode, op, requested, program, is_right, soft=soft) for soft in (True, False))
            runs.append(FallbackOperation(cause, mode, op, requested, soft, hard))
    return Reading(tuple(runs))


def judge(reading: Reading) -> Findings:
    for run in reading.runs:
        logged, expected = ", ".join(run.soft.logged), FALLS_TO[run.cause]
        if run.soft.raised:
            yield Fault.raised_instead.found(what=run.what, cause=run.cause, error=run.soft.raised.brief)
            continue
        if not (run.soft.correct and (run.hard.raised or run.hard.correct)):
            yield Fault.wrong_result.found(what=run.what, logged=logged or "an unknown device")
        if not run.soft.logged:
            yield Fault.not_logged.found(what=run.what)
        elif run.soft.logged != (expected,):
            yield Fault.fell_elsewhere.found(what=run.what, cause=run.cause, logged=logged, expected=expected)
        elif run.told != run.cause:
            happened = run.hard.raised.brief if run.hard.raised else "no error"
            yield Fault.cause_not_told.found(what=run.what, cause=run.cause, happened=happened)
