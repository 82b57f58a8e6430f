"""An operation that no `tf.device` places runs on the GPU with the lowest number.

What it does
    Multiplies two matrices without any `tf.device`: eagerly, inside `tf.function` and in a `tf.compat.v1.Session`. It
    looks in TensorFlow's placement log where MatMul ran, asks which GPU is behind that device by its PCI bus id, and
    compares the product with the right one.
Why it matters
    Most programs place nothing by hand: that they use the GPU at all, and which one of several, rests on this rule. Of
    several GPUs TensorFlow uses only the first, and the others idle until a program names them.
What a failure means
    `on_cpu`: the operation ran on the CPU although TensorFlow has a GPU device with a kernel for it.
    `not_the_first`: it ran on a GPU, and not on `GPU:0`.
    `not_logged`: the placement log does not show the operation.
    `program_raised`: the program did not run to its end.
    `gpu_not_seen`, `other_gpu`, `wrong_result`: TensorFlow does not use the GPUs that it was given, or not correctly.
What to do
    To use another GPU than the first, show TensorFlow that one alone: `export CUDA_VISIBLE_DEVICES=GPU-...`. To use
    several, name them, `with tf.device("/GPU:1"):`, or let `tf.distribute.MirroredStrategy()` do it. To learn where
    your own program computes, call `tf.debugging.set_log_device_placement(True)` right after the import.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from gpudiag import probe
from gpudiag.hostfacts import Facts
from gpudiag.model import Limits, Severity
from gpudiag.placement import devices_of
from gpudiag.probe import Case, Context, Judgement, Kind, Needs, Raised, Scope
from gpudiag.probes.common import GPU_NOT_SEEN, MATRIX, OTHER_GPU, WRONG_RESULT, Kernel, is_square, judge_kernel
from gpudiag.record import Record

PROBE = probe.Probe(needs=Needs(gpus=1), scope=Scope.ALL_GPUS, quick=True)

ON_CPU = Kind(
    "on_cpu",
    Severity.FAIL,
    "{mode}: MatMul, placed by nobody, ran on {logged} and not on GPU:0",
    'Place it by hand, with tf.device("/GPU:0"):, under tf.config.set_soft_device_placement(False): '
    "the error then tells the reason.",
)
NOT_THE_FIRST = Kind(
    "not_the_first",
    Severity.FAIL,
    "{mode}: MatMul, placed by nobody, ran on {logged} and not on GPU:0",
    "Show each program the one GPU that it is to use: export CUDA_VISIBLE_DEVICES=GPU-... (see nvidia-smi -L)",
)
NOT_LOGGED = Kind(
    "not_logged",
    Severity.FAIL,
    "{mode}: the placement log does not show MatMul",
    "Use a release of TensorFlow whose log gpudiag reads (2.18 to 2.21).",
)
PROGRAM_RAISED = Kind(
    "program_raised",
    Severity.FAIL,
    "{mode}: {error}",
    "Look for other processes in `nvidia-smi`, and for NVRM and Xid lines in `dmesg`.",
)

FIRST = "GPU:0"


class Run(Record):
    """One matrix product that nothing places."""

    mode: str
    """``eager``, ``tf.function`` or ``session``."""
    logged: tuple[str, ...] = ()
    """Devices on which MatMul was placed by the log, such as ``GPU:0``."""
    correct: bool = False
    """True: the product equals the one known beforehand."""
    raised: Raised | None = None


class Reading(probe.Reading):
    """Where the products were computed."""

    given: tuple[str, ...]
    """PCI bus ids of the GPUs that the probe was given, in the order of ``CUDA_VISIBLE_DEVICES``."""
    seen: int
    """GPUs that TensorFlow lists."""
    runs: tuple[Run, ...] = ()
    """Empty where TensorFlow lists too few GPUs."""
    bus_ids: dict[str, str] = {}
    """TensorFlow's devices (``GPU:0``) and the PCI bus ids behind them."""

    def figure(self) -> str:
        if not self.runs:
            return f"TensorFlow lists {self.seen} of {len(self.given)} GPUs"
        devices = sorted({device for run in self.runs for device in run.logged})
        return f"{len(self.given)} GPU(s), runs on {', '.join(devices) or 'no device'}"


def measure(ctx: Context) -> Reading:
    tf = ctx.tf
    given = tuple(gpu.pci_bus_id for gpu in ctx.gpus)
    tf.debugging.set_log_device_placement(True)
    seen = len(tf.config.list_physical_devices("GPU"))
    if seen < len(given):
        return Reading(given, seen)

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

    programs: dict[str, Callable[[], Any]] = {
        "eager": multiply,
        "tf.function": tf.function(multiply),
        "session": session,
    }
    runs: list[Run] = []
    for mode, program in programs.items():
        runs.append(_run(ctx, mode, program))
        if runs[-1].raised:
            return Reading(given, seen, tuple(runs))  # the next call into TensorFlow may never return (measured, 2.21)
    return Reading(given, seen, tuple(runs), ctx.pci_bus_ids())


def _run(ctx: Context, mode: str, program: Callable[[], Any]) -> Run:
    correct: list[bool] = []
    with ctx.placements() as log:
        raised = ctx.attempt(lambda: correct.append(is_square(program())))
    return Run(mode, devices_of("MatMul", log.placements), any(correct), raised)


def judge(reading: Reading, facts: Facts, limits: Limits) -> Iterator[Judgement]:
    if reading.seen < len(reading.given):
        yield GPU_NOT_SEEN.found(seen=reading.seen, given=len(reading.given))
        return
    for run in reading.runs:
        logged = ", ".join(run.logged)
        if run.raised:
            yield PROGRAM_RAISED.found(mode=run.mode, error=run.raised.brief)
        elif not run.logged:
            yield NOT_LOGGED.found(mode=run.mode)
        elif not all(device.startswith("GPU:") for device in run.logged):
            yield ON_CPU.found(mode=run.mode, logged=logged)
        elif run.logged != (FIRST,):
            yield NOT_THE_FIRST.found(mode=run.mode, logged=logged)
        else:
            kernel = Kernel(f"{FIRST}, {run.mode}", reading.bus_ids.get(FIRST, ""), run.correct)
            yield from judge_kernel(kernel, reading.given[0])


_PCI = ("0000:3b:00.0", "0000:af:00.0")
_RIGHT = (Run("eager", (FIRST,), True), Run("tf.function", (FIRST,), True))


def _case(name: str, *expect: str, last: Run, gpus: int = 2, first: str = _PCI[0]) -> Case:
    reading = Reading(_PCI[:gpus], gpus, (*_RIGHT, last), {"GPU:0": first, "GPU:1": _PCI[1]})
    return Case(name, expect, reading, verified=_PCI[:1] if first == _PCI[0] else ())


CASES = (
    _case("the first of two", last=Run("session", (FIRST,), True)),
    _case("the only one", last=Run("session", (FIRST,), True), gpus=1),
    _case("on the CPU", ON_CPU.name, last=Run("session", ("CPU:0",), True)),
    _case("on the second", NOT_THE_FIRST.name, last=Run("session", ("GPU:1",), True)),
    _case("a silent log", NOT_LOGGED.name, last=Run("session", (), True)),
    Case(
        "a busy GPU",
        (PROGRAM_RAISED.name,),
        Reading(_PCI, 2, (Run("eager", raised=Raised("RuntimeError", "CUDA-capable device(s) is/are busy")),)),
    ),
    _case("a wrong product", WRONG_RESULT.name, last=Run("session", (FIRST,), False)),
    _case("another GPU", *[OTHER_GPU.name] * 3, last=Run("session", (FIRST,), True), first=_PCI[1]),
    Case("TensorFlow without GPU", (GPU_NOT_SEEN.name,), Reading(_PCI, 0)),
)
