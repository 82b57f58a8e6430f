"""Every operation of a small program is found in TensorFlow's placement log, on the device it was put on.

What it does
    Splits the CPU into two logical devices, switches the placement log on and runs two operations eagerly, two in a
    `tf.function` and two in a `tf.compat.v1.Session`, one of each two on CPU:0 and the other on CPU:1. It captures what
    TensorFlow's C++ code writes to stdout and stderr and looks each operation up.
Why it matters
    The placement log is the one source that says where operations really ran, and every verdict of the placement and
    logical probes rests on it. It must be there, complete and readable before they can be believed.
What to do
    In your own program call `tf.debugging.set_log_device_placement(True)` right after `import tensorflow`: once
    TensorFlow has initialised, the call is accepted and nothing is logged. Leave `TF_CPP_MIN_LOG_LEVEL` unset: eager
    placements are INFO lines. A session logs with `tf.compat.v1.ConfigProto(log_device_placement=True)`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpudiag import fix, probe
from gpudiag.knowledge.placement import devices_of
from gpudiag.probe import Context, Findings, Raised, fail
from gpudiag.record import Record

PROBE = probe.Probe()


class Fault(probe.Faults):
    op_not_logged = fail(
        "{mode}: {op} ran on {expected} and is not in the placement log",
        means="An operation is not in the placement log.",
        do="Use a release of TensorFlow whose log gpudiag reads (2.18 to 2.21).",
    )
    op_elsewhere = fail(
        "{mode}: {op} was put on {expected}, the log says {logged}",
        means="The placement log names another device than the operation was put on.",
        do=fix.install("--force-reinstall", "tensorflow", note="reinstall TensorFlow"),
    )
    program_raised = fail(
        "{mode}: {error}",
        means="The program did not run to its end.",
        do=fix.install("--force-reinstall", "tensorflow", note="two logical CPU devices need no GPU"),
    )
    wrong_result = fail(
        "{mode}: the result is {result}, not {expected}",
        means="The result of the logged program is wrong.",
        do="Trust no result of this machine. Test its memory and processor, then reinstall TensorFlow.",
    )


# Operation type to device: no type twice, so that a line says which operation it is about.
PROGRAMS = {
    "eager": {"MatMul": "CPU:1", "AddV2": "CPU:0"},
    "tf.function": {"Mul": "CPU:1", "Sum": "CPU:0"},
    "session": {"Sub": "CPU:1", "Max": "CPU:0"},
}
RESULTS = {"eager": 12.0, "tf.function": 14.0, "session": 2.0}


class LoggedProgram(Record):
    """One of the three programs whose placements are logged."""

    mode: str
    """The kind of program: ``eager``, ``tf.function`` or ``session``."""
    logged: dict[str, tuple[str, ...]]
    """The devices on which the log shows each type of operation."""
    result: float | None = None
    """The result of the program; None if it raised."""
    raised: Raised | None = None


class Reading(probe.Reading):
    """TensorFlow's placement log of each program."""

    runs: tuple[LoggedProgram, ...]

    def figure(self) -> str:
        found = sum(bool(devices) for run in self.runs for devices in run.logged.values())
        return f"{found} of {sum(len(run.logged) for run in self.runs)} operations in the log"


def measure(ctx: Context) -> Reading:
    tf = ctx.tf
    # First of all: after initialisation TensorFlow 2.21 accepts the call, says True, and logs nothing (measured).
    tf.debugging.set_log_device_placement(True)
    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    vector = tf.constant([1.0, 2.0, 3.0])

    def eager() -> Any:
        with tf.device("/CPU:1"):
            product = tf.matmul([[2.0]], [[5.0]])
        with tf.device("/CPU:0"):
            return tf.add(product, 2.0)[0, 0].numpy()

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def function(operand: Any) -> Any:
        with tf.device("/CPU:1"):
            squares = tf.multiply(operand, operand)
        with tf.device("/CPU:0"):
            return tf.reduce_sum(squares)

    def session() -> Any:
        v1 = tf.compat.v1
        config = v1.ConfigProto(log_device_placement=True, device_count={"CPU": 2})
        with tf.Graph().as_default(), v1.Session(config=config) as running:
            operand = v1.placeholder(tf.float32, [3])
            with tf.device("/CPU:1"):
                difference = tf.subtract(operand, 1.0)
            with tf.device("/CPU:0"):
                largest = tf.reduce_max(difference)
            return running.run(largest, {operand: [1.0, 2.0, 3.0]})

    programs: dict[str, Callable[[], Any]] = {
        "eager": eager,
        "tf.function": lambda: function(vector).numpy(),
        "session": session,
    }
    return Reading(tuple(_run(ctx, mode, program) for mode, program in programs.items()))


def _run(ctx: Context, mode: str, program: Callable[[], Any]) -> LoggedProgram:
    results: list[float] = []
    with ctx.placements() as log:
        raised = ctx.attempt(lambda: results.append(float(program())))
    logged = {op: devices_of(op, log.placements) for op in PROGRAMS[mode]}
    return LoggedProgram(mode, logged, results[0] if results else None, raised)


def judge(reading: Reading) -> Findings:
    for run in reading.runs:
        if run.raised:
            yield Fault.program_raised.found(mode=run.mode, error=run.raised.brief)
            continue
        if run.result != RESULTS[run.mode]:
            yield Fault.wrong_result.found(mode=run.mode, result=run.result, expected=RESULTS[run.mode])
        for op, expected in PROGRAMS[run.mode].items():
            logged = run.logged[op]
            if not logged:
                yield Fault.op_not_logged.found(mode=run.mode, op=op, expected=expected)
            elif logged != (expected,):
                yield Fault.op_elsewhere.found(mode=run.mode, op=op, expected=expected, logged=", ".join(logged))
