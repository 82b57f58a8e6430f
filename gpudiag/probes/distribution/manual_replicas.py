"""The same product computed on every GPU, and added on the CPU, is right.

What it does
    Puts one matrix product on each GPU with `tf.device`, and adds the products on `CPU:0` with `tf.add_n`: the manual
    placement of TensorFlow's guide. With two GPUs the sum is `[[44, 56], [98, 128]]`. A single GPU is split into two
    logical devices. The GPU behind a device is told by its PCI bus id.
Why it matters
    It is the smallest program for several GPUs. It needs no strategy and no collective: where it fails, nothing that is
    built on several GPUs can work.
What a failure means
    `program_raised`: a product, or its copy to the CPU, failed.
    `sum_elsewhere`: the sum was not computed on the CPU.
    `wrong_sum`: every product is right and their sum is not: data was lost on the way to the CPU.
    `gpu_not_seen`, `other_gpu`, `wrong_result`: TensorFlow does not use the GPUs that it was given, or not correctly.
What to do
    `for gpu in tf.config.list_logical_devices("GPU"):` and `with tf.device(gpu.name):` for the parts, and
    `with tf.device("/CPU:0"): tf.add_n(parts)` for the sum. Call `tf.config.set_soft_device_placement(False)` first: a
    device that is not there is an error then.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpudiag import probe
from gpudiag.hostfacts import Facts
from gpudiag.model import Limits, Severity
from gpudiag.placement import short_device
from gpudiag.probe import Case, Context, Judgement, Kind, Needs, Raised, Scope
from gpudiag.probes.common import (
    GPU_NOT_SEEN,
    OTHER_GPU,
    WRONG_RESULT,
    Kernel,
    Numbers,
    Replicas,
    judge_kernel,
    judge_replicas,
    make_replicas,
    numbers,
)
from gpudiag.record import Record

PROBE = probe.Probe(needs=Needs(gpus=1), scope=Scope.ALL_GPUS)

PROGRAM_RAISED = Kind(
    "program_raised",
    Severity.FAIL,
    "products on {devices}, added on CPU:0, raised {error}",
    "Try each GPU alone: export CUDA_VISIBLE_DEVICES=GPU-... (see nvidia-smi -L), and look for NVRM and Xid lines in "
    "`dmesg`.",
)
SUM_ELSEWHERE = Kind(
    "sum_elsewhere",
    Severity.FAIL,
    "the sum was put on CPU:0 and is on {device}",
    "Reinstall TensorFlow: pip install --force-reinstall 'tensorflow[and-cuda]'",
)
WRONG_SUM = Kind(
    "wrong_sum",
    Severity.FAIL,
    "the sum of {count} products is {total}, it should be {expected}",
    "Trust no result of these GPUs together. Look for their errors in `nvidia-smi -q -d ECC` and `dmesg | grep Xid`.",
)

LEFT = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
RIGHT = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
PRODUCT = (22.0, 28.0, 49.0, 64.0)
"""Row by row."""


class Sum(Record):
    """The products, added."""

    parts: tuple[Kernel, ...]
    """In the order of TensorFlow's numbers."""
    total: Numbers
    device: str
    """The device that holds it."""


class Reading(probe.Reading):
    """What the GPUs computed."""

    replicas: Replicas
    sum: Sum | None
    """None where it raised, or where TensorFlow lists too few GPUs."""
    raised: Raised | None

    def figure(self) -> str:
        if self.sum is None:
            return self.replicas.where
        return f"{_matrix(self.sum.total)} from {self.replicas.where}"


def measure(ctx: Context) -> Reading:
    tf = ctx.tf
    replicas = make_replicas(ctx)
    if not replicas.made:
        return Reading(replicas, None, None)
    sums: list[Sum] = []

    def program() -> None:
        parts: list[Any] = []
        for device in replicas.made:
            with tf.device(device):
                parts.append(tf.matmul(tf.constant(LEFT), tf.constant(RIGHT)))
        with tf.device("/CPU:0"):
            total = tf.add_n(parts)
        kernels = []
        for part in parts:
            device = short_device(part.device)
            kernels.append(Kernel(device, replicas.made.get(device, ""), numbers(part) == PRODUCT))
        sums.append(Sum(tuple(kernels), numbers(total), short_device(total.device)))

    raised = ctx.attempt(program)
    return Reading(replicas, sums[0] if sums else None, raised)


def _matrix(values: Numbers) -> str:
    first, second, third, fourth = ("NaN" if value is None else f"{value:g}" for value in values)
    return f"[[{first}, {second}], [{third}, {fourth}]]"


def judge(reading: Reading, facts: Facts, limits: Limits) -> Iterator[Judgement]:
    replicas, result = reading.replicas, reading.sum
    unusable = tuple(judge_replicas(replicas))
    yield from unusable
    if unusable:
        return
    if reading.raised is not None:
        yield PROGRAM_RAISED.found(devices=", ".join(replicas.made), error=reading.raised.brief)
    if result is None:
        return
    for part, pci_bus_id in zip(result.parts, replicas.expected, strict=True):
        yield from judge_kernel(part, pci_bus_id)
    if result.device != "CPU:0":
        yield SUM_ELSEWHERE.found(device=result.device)
    expected = tuple(value * len(result.parts) for value in PRODUCT)
    if result.total != expected and all(part.correct for part in result.parts):
        yield WRONG_SUM.found(count=len(result.parts), total=_matrix(result.total), expected=_matrix(expected))


_FIRST, _SECOND = "0000:3b:00.0", "0000:af:00.0"
_TWO = Replicas((_FIRST, _SECOND), 2, {"GPU:0": _FIRST, "GPU:1": _SECOND})
_PARTS = (Kernel("GPU:0", _FIRST, True), Kernel("GPU:1", _SECOND, True))
_TOTAL: Numbers = (44.0, 56.0, 98.0, 128.0)


def _case(
    name: str,
    *expect: str,
    parts: tuple[Kernel, ...] = _PARTS,
    total: Numbers = _TOTAL,
    device: str = "CPU:0",
    verified: tuple[str, ...] = (_FIRST, _SECOND),
) -> Case:
    return Case(name, expect, Reading(_TWO, Sum(parts, total, device), None), verified=verified)


CASES = (
    _case("two GPUs"),
    Case(
        "one GPU, split",
        (),
        Reading(
            Replicas((_FIRST,), 1, {"GPU:0": _FIRST, "GPU:1": _FIRST}),
            Sum((_PARTS[0], Kernel("GPU:1", _FIRST, True)), _TOTAL, "CPU:0"),
            None,
        ),
        verified=(_FIRST,),
    ),
    _case("both on the first GPU", OTHER_GPU.name, parts=(_PARTS[0], _PARTS[0]), verified=(_FIRST,)),
    _case("the sum on a GPU", SUM_ELSEWHERE.name, device="GPU:0"),
    _case("one part lost", WRONG_SUM.name, total=PRODUCT),
    _case("not a number", WRONG_SUM.name, total=(None, 56.0, 98.0, 128.0)),
    _case("a wrong product", WRONG_RESULT.name, parts=(_PARTS[0], Kernel("GPU:1", _SECOND, False)), verified=(_FIRST,)),
    Case("a copy failed", (PROGRAM_RAISED.name,), Reading(_TWO, None, Raised("InternalError", "CUDA error: "))),
    Case(
        "devices on one GPU only",
        (OTHER_GPU.name,),
        Reading(Replicas((_FIRST, _SECOND), 2, {"GPU:0": _FIRST, "GPU:1": _FIRST}), None, None),
    ),
    Case("TensorFlow lists one of two", (GPU_NOT_SEEN.name,), Reading(Replicas((_FIRST, _SECOND), 1, {}), None, None)),
)
