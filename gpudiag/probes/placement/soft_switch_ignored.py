"""Ten ways to set soft placement, nine of them wrong, have their known effects.

What it does
    On two logical CPU devices, tries each of these ways and looks whether the operation then raises, or on which device
    it ran by the placement log. Meant to switch soft placement off, and ignored:
    `ConfigProto(allow_soft_placement=False)` for eager mode, given first of all or late, and the function assigned to
    instead of called, `tf.config.set_soft_device_placement = False`. Not affected by switching it off: a scalar
    constant that was made before and is handed out again, and a write to a variable, which runs where the variable is.
    Not affected by switching it on: a `tf.compat.v1.Session`, which without a config has hard placement until the
    function was called, and with a config ignores the function. And any device type is accepted, such as
    `/device:FOO:0`. The tenth is the right way, to show that the switch itself works.
Why it matters
    Every one of them is silent. A program, or a test suite, that trusts one to keep its operations on the GPU computes
    on the CPU; a session that was to fall back stops.
What to do
    In TensorFlow 2 call `tf.config.set_soft_device_placement(False)` before the first operation, and nothing else. For
    a session write `tf.compat.v1.ConfigProto(allow_soft_placement=False)`, or `True`, every time. Then read the
    placement log: variables, tables and iterators draw operations to their own device under any setting.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpudiag import probe
from gpudiag.knowledge.placement import devices_of, short_device
from gpudiag.probe import Context, Findings, Raised, note
from gpudiag.probes.common import MATRIX
from gpudiag.record import Record

PROBE = probe.Probe()


class Fault(probe.Faults):
    behaviour_changed = note(
        "{what}: {happened}; TensorFlow 2.18 to 2.21: {known}",
        means=(
            "This TensorFlow does something else than 2.18 to 2.21 do. Only a note: programs that rely on "
            "the old way need a second look."
        ),
        do="Look whether your program relies on it; set placement by tf.config.set_soft_device_placement alone.",
    )


MISSING = "/GPU:99"
RAISES = "InvalidArgumentError"


class Way(Record):
    """A way to set soft placement, and its known effect."""

    what: str
    comes_to: str
    """The device on which the operation runs, or :data:`RAISES`."""


WAYS = {
    "eager_config": Way("ConfigProto(allow_soft_placement=False) for eager mode", "CPU:0"),
    "session_default": Way("Session() if nothing was set, eager mode being soft", RAISES),
    "session_inherits": Way("Session() after set_soft_device_placement(True)", "CPU:0"),
    "session_config": Way("Session(config=ConfigProto()) after set_soft_device_placement(True)", RAISES),
    "late_config": Way("enable_eager_execution(config=...) in eager mode", "CPU:0"),
    "assigned": Way("set_soft_device_placement = False", "CPU:0"),
    "made_up_type": Way("/device:FOO:0, soft placement on", "CPU:0"),
    "switched_off": Way("set_soft_device_placement(False), as it is meant", RAISES),
    "old_constant": Way("a scalar constant made before soft placement was switched off", "CPU:0"),
    "variable": Way("a variable of CPU:1 written under /CPU:0, soft placement off", "CPU:1"),
}


class SwitchEffect(Record):
    """The effect of one way."""

    way: str
    """The way, one of :data:`WAYS`."""
    logged: tuple[str, ...] = ()
    """The devices on which the log shows the operation; empty for a reused constant, which runs nothing."""
    device: str = ""
    """The value of ``result.device``; empty if the call raised, and for sessions, which return arrays."""
    raised: Raised | None = None

    @property
    def came_to(self) -> str:
        """The effect, in the terms of :attr:`Way.comes_to`."""
        return self.raised.type if self.raised else ", ".join(self.logged) or self.device


class Reading(probe.Reading):
    """The effect of each way."""

    attempts: tuple[SwitchEffect, ...]

    def figure(self) -> str:
        known = sum(attempt.came_to == WAYS[attempt.way].comes_to for attempt in self.attempts)
        return f"{known} of {len(self.attempts)} ways as known"


def measure(ctx: Context) -> Reading:
    tf, v1 = ctx.tf, ctx.tf.compat.v1
    attempts: list[SwitchEffect] = []

    def attempt(way: str, op: str, program: Callable[[], Any]) -> None:
        results: list[Any] = []
        with ctx.placements() as log:
            raised = ctx.attempt(lambda: results.append(program()))
        device = short_device(results[0].device) if results and tf.is_tensor(results[0]) else ""
        attempts.append(SwitchEffect(way, devices_of(op, log.placements), device, raised))

    def multiply(device: str = MISSING) -> Any:
        with tf.device(device):
            return tf.matmul(matrix, matrix)

    def run_session(*config: Any) -> Any:
        with tf.Graph().as_default(), v1.Session(*config) as session:
            operand = v1.placeholder(tf.float32, [2, 2])
            with tf.device(MISSING):
                product = tf.matmul(operand, operand)
            return session.run(product, {operand: MATRIX})

    def constant() -> Any:
        with tf.device(MISSING):
            return tf.constant(21.0)

    def write() -> Any:
        with tf.device("/CPU:0"):
            return variable.assign_add(addend)

    # First of all: it is effective, but for this field, only before anything else.
    v1.disable_eager_execution()
    v1.enable_eager_execution(config=v1.ConfigProto(allow_soft_placement=False))
    tf.debugging.set_log_device_placement(True)
    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    matrix, addend = tf.constant(MATRIX), tf.constant(1.0)
    attempt("eager_config", "MatMul", multiply)
    attempt("session_default", "MatMul", run_session)

    tf.config.set_soft_device_placement(True)
    attempt("session_inherits", "MatMul", run_session)
    attempt("session_config", "MatMul", lambda: run_session("", None, v1.ConfigProto(log_device_placement=True)))
    v1.enable_eager_execution(config=v1.ConfigProto(allow_soft_placement=False))
    attempt("late_config", "MatMul", multiply)
    switch = tf.config.set_soft_device_placement
    tf.config.set_soft_device_placement = False
    attempt("assigned", "MatMul", multiply)
    tf.config.set_soft_device_placement = switch
    attempt("made_up_type", "MatMul", lambda: multiply("/device:FOO:0"))
    ctx.attempt(constant)  # if it raises, the later attempt does too
    with tf.device("/CPU:1"):
        variable = tf.Variable(0.0)

    tf.config.set_soft_device_placement(False)
    attempt("switched_off", "MatMul", multiply)
    attempt("old_constant", "Const", constant)
    attempt("variable", "AssignAddVariableOp", write)
    return Reading(tuple(attempts))


def judge(reading: Reading) -> Findings:
    for attempt in reading.attempts:
        way = WAYS[attempt.way]
        if attempt.came_to == way.comes_to:
            continue
        happened = attempt.raised.brief if attempt.raised else f"runs on {attempt.came_to or 'an unknown device'}"
        known = f"raises {RAISES}" if way.comes_to == RAISES else f"runs on {way.comes_to}"
        yield Fault.behaviour_changed.found(what=way.what, happened=happened, known=known)
