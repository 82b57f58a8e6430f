"""With soft placement off, an operation asked for on a missing device raises an error that names it.

What it does
    Switches soft placement off and multiplies two matrices under `tf.device("/GPU:99")`, a device that does not exist,
    eagerly, inside `tf.function` and in a `tf.compat.v1.Session`. It does the same with a device of another job,
    `/job:worker/device:CPU:0`, there also with soft placement on, because soft placement never crosses jobs. It records
    the exception's type and text.
Why it matters
    Hard placement is the way to make a program fail loudly instead of computing silently on the CPU. A test suite that
    relies on it is worthless if the error does not come.
What to do
    Call `tf.config.set_soft_device_placement(False)` before the first operation and look whether a library switches it
    on again. A session has its own switch: `tf.compat.v1.ConfigProto(allow_soft_placement=False)`. Do not test
    with a scalar constant: TensorFlow caches those per device name, and one that was made under soft placement is
    handed out again without an error.
"""

from __future__ import annotations

from typing import Any

from gpudiag import probe
from gpudiag.knowledge.placement import devices_of, short_device
from gpudiag.probe import Context, Findings, Raised, fail, warn
from gpudiag.probes.common import MATRIX
from gpudiag.record import Record

PROBE = probe.Probe()


class Fault(probe.Faults):
    no_error = fail(
        "{what}: no error, it ran on {device}",
        means="With soft placement off, an operation on a device that does not exist ran on another.",
        do="Look for a library that calls tf.config.set_soft_device_placement(True) after your own call with False.",
    )
    other_type = fail(
        "{what}: {error} (expected InvalidArgumentError)",
        means="With soft placement off, a device that does not exist raised another error than InvalidArgumentError.",
        do="Catch that exception too, or use a release of TensorFlow that raises InvalidArgumentError (2.1 to 2.21).",
    )
    other_text = warn(
        "{what}: the error does not say that the device is missing: {error}",
        means="The error for a device that does not exist does not say that the device is missing.",
        do="Do not match on the text of this error; report to gpudiag this release of TensorFlow.",
    )


MISSING = "/GPU:99"
OTHER_JOB = "/job:worker/device:CPU:0"

# Four places in TensorFlow word this error: eager placement, a function's multi-device instantiation, the placer (of a
# session, too), and a copy to the device. Measured on 2.21.0; which one speaks depends on mode and soft placement.
_WORDS = (
    "Could not satisfy device specification",
    "Unable to find any devices for spec",
    "Cannot assign a device for operation",
    "unknown device",
)


class HardError(Record):
    """A matrix product requested on a missing device."""

    mode: str
    """``eager``, ``tf.function`` or ``session``."""
    requested: str
    """The requested device, as the program named it."""
    soft: bool
    """Whether soft placement was on."""
    raised: Raised | None = None
    device: str = ""
    """The device on which the product ran instead of raising; empty if it raised."""

    @property
    def what(self) -> str:
        """The requested device, mode and placement, in words."""
        return f"{self.requested}, {self.mode}, soft placement {'on' if self.soft else 'off'}"


class Reading(probe.Reading):
    """The error of each attempt."""

    runs: tuple[HardError, ...]

    def figure(self) -> str:
        return f"{sum(run.raised is not None for run in self.runs)} of {len(self.runs)} raised"


def measure(ctx: Context) -> Reading:
    tf = ctx.tf
    matrix = tf.constant(MATRIX)

    def run(mode: str, requested: str, *, soft: bool) -> HardError:
        tf.config.set_soft_device_placement(soft)

        def square(operand: Any) -> Any:
            with tf.device(requested):
                return tf.matmul(operand, operand)

        multiply = tf.function(square, autograph=False) if mode == "tf.function" else square
        devices: list[str] = []
        raised = ctx.attempt(lambda: devices.append(short_device(multiply(matrix).device)))
        return HardError(mode, requested, soft, raised, "".join(devices))

    def run_session(requested: str, *, soft: bool) -> HardError:
        v1 = tf.compat.v1
        config = v1.ConfigProto(allow_soft_placement=soft, log_device_placement=True)

        def multiply() -> None:
            with tf.Graph().as_default(), v1.Session(config=config) as session:
                operand = v1.placeholder(tf.float32, [2, 2])
                with tf.device(requested):
                    product = tf.matmul(operand, operand)
                session.run(product, {operand: MATRIX})

        with ctx.placements() as log:
            raised = ctx.attempt(multiply)
        devices = () if raised else devices_of("MatMul", log.placements)
        return HardError("session", requested, soft, raised, ", ".join(devices))

    requests = ((MISSING, False), (OTHER_JOB, False), (OTHER_JOB, True))
    eager = [run(mode, requested, soft=soft) for mode in ("eager", "tf.function") for requested, soft in requests]
    return Reading((*eager, *(run_session(requested, soft=soft) for requested, soft in requests)))


def judge(reading: Reading) -> Findings:
    for run in reading.runs:
        if run.raised is None:
            yield Fault.no_error.found(what=run.what, device=run.device)
        elif run.raised.type != "InvalidArgumentError":
            yield Fault.other_type.found(what=run.what, error=run.raised.brief)
        elif not (any(words in run.raised.message for words in _WORDS) and _names(run)):
            yield Fault.other_text.found(what=run.what, error=run.raised.brief)


def _names(run: HardError) -> bool:
    """Return True if the error names the requested device, in whatever notation."""
    assert run.raised is not None
    return all(part in run.raised.message for part in run.requested.removeprefix("/").split("/"))
