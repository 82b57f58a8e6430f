"""With soft placement, an operation asked for on a missing device runs on one that is there.

What it does
    Switches soft placement on and multiplies two matrices under `tf.device("/GPU:99")`, a device that does not exist,
    once eagerly and once inside `tf.function`. It reads from TensorFlow's placement log, and from the result, where
    the product was computed, and compares the result with the right one. A missing device is the first of three causes
    of a fallback; the other two need a GPU: `placement.fallback_causes` shows all three and distinguishes them.
Why it matters
    Soft placement is TensorFlow's default. It is why code written for a GPU runs on a machine without one, and also why
    a program silently computes on the CPU. Both rest on the behaviour that is measured here.
What to do
    Make sure that nothing switches soft placement off: `tf.config.set_soft_device_placement(True)`. To learn where
    operations run in your own program, call `tf.debugging.set_log_device_placement(True)` right after the import.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpudiag import fix, probe
from gpudiag.knowledge.placement import devices_of, short_device
from gpudiag.probe import Context, Findings, Raised, fail
from gpudiag.probes.common import MATRIX, is_square
from gpudiag.record import Record

PROBE = probe.Probe(quick=True)


class Fault(probe.Faults):
    raised_instead = fail(
        "{mode}: an error instead of a fallback for {requested}: {error}",
        means="With soft placement on, an operation on a device that does not exist raised an error.",
        do=fix.edit("tf.config.set_soft_device_placement(True)", "switch soft placement on before the first operation"),
    )
    on_missing_device = fail(
        "{mode}: TensorFlow says that MatMul ran on {device}, which does not exist",
        means="TensorFlow says that an operation ran on a device that does not exist.",
        do=fix.install(
            "--force-reinstall", "tensorflow", note="trust no placement here until TensorFlow is reinstalled"
        ),
    )
    not_logged = fail(
        "{mode}: the placement log does not show MatMul",
        means="The placement log does not show a matrix product.",
        do="Use a release of TensorFlow whose log gpudiag reads (2.18 to 2.21).",
    )
    log_disagrees = fail(
        "{mode}: the placement log says {logged}, the result says {device}",
        means="The placement log names another device than the result.",
        do=fix.install(
            "--force-reinstall", "tensorflow", note="trust no placement here until TensorFlow is reinstalled"
        ),
    )
    wrong_result = fail(
        "{mode}: the product computed on {device} is wrong",
        means="A matrix product that fell back to another device is wrong.",
        do="Trust no result of this machine. Test its memory and processor, then reinstall TensorFlow.",
    )


MISSING = "/GPU:99"


class SoftFallback(Record):
    """A matrix product requested on a missing device."""

    mode: str
    """``eager`` or ``tf.function``."""
    logged: tuple[str, ...] = ()
    """The devices of MatMul in the placement log, such as ``CPU:0``."""
    device: str = ""
    """The device that holds the result; empty if there is none."""
    correct: bool = False
    """True if the product equals the known one."""
    raised: Raised | None = None


class Reading(probe.Reading):
    """The devices that computed the products."""

    present: tuple[str, ...]
    """Every device that TensorFlow has here, such as ``CPU:0``."""
    runs: tuple[SoftFallback, ...]

    def figure(self) -> str:
        return f"{MISSING} runs on {', '.join(sorted({run.device or 'no device' for run in self.runs}))}"


def measure(ctx: Context) -> Reading:
    tf = ctx.tf
    tf.debugging.set_log_device_placement(True)
    tf.config.set_soft_device_placement(True)
    present = tuple(short_device(device.name) for device in tf.config.list_logical_devices())
    matrix = tf.constant(MATRIX)

    def square(operand: Any) -> Any:
        with tf.device(MISSING):
            return tf.matmul(operand, operand)

    return Reading(
        present,
        (
            _run(ctx, "eager", lambda: square(matrix)),
            _run(ctx, "tf.function", lambda: tf.function(square, autograph=False)(matrix)),
        ),
    )


def _run(ctx: Context, mode: str, multiply: Callable[[], Any]) -> SoftFallback:
    products: list[Any] = []
    with ctx.placements() as log:
        raised = ctx.attempt(lambda: products.append(multiply()))
    if raised:
        return SoftFallback(mode, devices_of("MatMul", log.placements), raised=raised)
    (product,) = products
    return SoftFallback(mode, devices_of("MatMul", log.placements), short_device(product.device), is_square(product))


def judge(reading: Reading) -> Findings:
    for run in reading.runs:
        if run.raised:
            yield Fault.raised_instead.found(mode=run.mode, requested=MISSING, error=run.raised.brief)
            continue
        for device in {run.device, *run.logged} - set(reading.present):
            yield Fault.on_missing_device.found(mode=run.mode, device=device)
        if not run.logged:
            yield Fault.not_logged.found(mode=run.mode)
        elif run.logged != (run.device,):
            yield Fault.log_disagrees.found(mode=run.mode, logged=", ".join(run.logged), device=run.device)
        if not run.correct:
            yield Fault.wrong_result.found(mode=run.mode, device=run.device)
