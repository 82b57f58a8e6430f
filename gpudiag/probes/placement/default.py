"""An operation that no `tf.device` places runs on the GPU with the lowest number.

What it does
    Multiplies two matrices without any `tf.device`: eagerly, inside `tf.function` and in a `tf.compat.v1.Session`. It
    looks in TensorFlow's placement log where MatMul ran, asks which GPU is behind that device by its PCI bus id, and
    compares the product with the right one.
Why it matters
    Most programs place nothing by hand: this rule decides whether they use the GPU at all, and which one of several. Of
    several GPUs TensorFlow uses only the first, and the others idle until a program names them.
What to do
    To use another GPU than the first, show TensorFlow that one alone: `export CUDA_VISIBLE_DEVICES=GPU-...`. To use
    several, name them, `with tf.device("/GPU:1"):`, or let `tf.distribute.MirroredStrategy()` do it. To learn where
    your own program computes, call `tf.debugging.set_log_device_placement(True)` right after the import.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpudiag import fix, probe
from gpudiag.knowledge.placement import devices_of
from gpudiag.probe import Context, Findings, Kernel, Raised, fail
from gpudiag.probes.common import MATRIX, is_square
from gpudiag.record import Record
from gpudiag.text import counted

PROBE = probe.Probe(needs=probe.Needs(gpus=1), scope=probe.Scope.ALL_GPUS, quick=True)


class Fault(probe.KernelFaults):
    on_cpu = fail(
        "{mode}: MatMul without a requested device ran on {logged} and not on GPU:0",
        means="The operation ran on the CPU although TensorFlow has a GPU device with a kernel for it.",
        do=probe.BY_HAND,
    )
    not_the_first = fail(
        "{mode}: MatMul without a requested device ran on {logged} and not on GPU:0",
        means="An operation without a requested device ran on a GPU, but not on GPU:0.",
        do=fix.export(
            "CUDA_VISIBLE_DEVICES",
            "GPU-...",
            "show each program the one GPU that it is to use; nvidia-smi -L lists them",
        ),
    )
    not_logged = fail(
        "{mode}: the placement log does not show MatMul",
        means="The placement log does not show a matrix product.",
        do="Use a release of TensorFlow whose log gpudiag reads (2.18 to 2.21).",
    )
    program_raised = fail(
        "{mode}: {error}",
        means="The program did not run to its end.",
        do=probe.LOOK,
    )


FIRST = "GPU:0"


class DefaultPlacement(Record):
    """A matrix product without a requested device."""

    mode: str
    """``eager``, ``tf.function`` or ``session``."""
    logged: tuple[str, ...] = ()
    """The devices of MatMul in the placement log, such as ``GPU:0``."""
    correct: bool = False
    """True if the product equals the known one."""
    raised: Raised | None = None


class Reading(probe.GpuReading):
    """The devices that computed the products."""

    runs: tuple[DefaultPlacement, ...]
    bus_ids: dict[str, str]
    """TensorFlow's devices (``GPU:0``) with the PCI bus ids behind them; empty if a program raised."""

    def figure(self) -> str:
        devices = sorted({device for run in self.runs for device in run.logged})
        return f"{counted(len(self.given), 'GPU')}, runs on {', '.join(devices) or 'no device'}"


def measure(ctx: Context) -> Reading:
    tf = ctx.tf
    tf.debugging.set_log_device_placement(True)
    ctx.list_gpus()

    def multiply() -> Any:
        matrix = tf.constant(MATRIX)
        return tf.matmul(matrix, matrix)

    def session() -> Any:
        v1 = tf.compat.v1
        config = v1.ConfigProto(log_device_placement=True)
        with tf.Graph().as_default(), v1.Session(config=config) as running:
            # Not a constant: those are folded before the graph is run.
            operand = v1.placeholder(tf.float32, [2, 2])
            return running.run(tf.matmul(operand, operand), {operand: MATRIX})

    modes: dict[str, Callable[[], Any]] = {
        "eager": multiply,
        "tf.function": tf.function(multiply, autograph=False),
        "session": session,
    }
    runs: list[DefaultPlacement] = []
    for mode, program in modes.items():
        runs.append(_run(ctx, mode, program))
        if runs[-1].raised:
            return Reading(tuple(runs), {})  # the next call into TensorFlow may never return (measured, 2.21)
    return Reading(tuple(runs), ctx.pci_bus_ids())


def _run(ctx: Context, mode: str, program: Callable[[], Any]) -> DefaultPlacement:
    correct: list[bool] = []
    with ctx.placements() as log:
        raised = ctx.attempt(lambda: correct.append(is_square(program())))
    return DefaultPlacement(mode, devices_of("MatMul", log.placements), any(correct), raised)


def judge(reading: Reading) -> Findings:
    for run in reading.runs:
        logged = ", ".join(run.logged)
        if run.raised:
            yield Fault.program_raised.found(mode=run.mode, error=run.raised.brief)
        elif not run.logged:
            yield Fault.not_logged.found(mode=run.mode)
        elif not all(device.startswith("GPU:") for device in run.logged):
            yield Fault.on_cpu.found(mode=run.mode, logged=logged)
        elif run.logged != (FIRST,):
            yield Fault.not_the_first.found(mode=run.mode, logged=logged)
        else:
            kernel = Kernel(f"{FIRST}, {run.mode}", reading.bus_ids.get(FIRST, ""), run.correct)
            yield from kernel.verified_on(reading.given[0])
