"""Each way of TensorFlow to reduce over GPUs gives the right sum on every GPU.

What it does
    Makes a `tf.distribute.MirroredStrategy` with each of the `cross_device_ops` `HierarchicalCopyAllReduce`,
    `ReductionToOneDevice` and `NcclAllReduce`, and adds a vector that differs from replica to replica. A single GPU is
    split into two logical devices. NCCL needs separate GPUs, so `NcclAllReduce` is left out on one GPU, and on
    simulated GPUs, which have no NCCL.
Why it matters
    Where NCCL does not work, the two others often do: they copy between GPUs through TensorFlow's own streams. A sum
    that is wrong raises nothing; the training is only worse.
What a failure means
    `op_raised`: one of them failed; the message says which of the others work.
    `op_hangs`: one of them did not end within 10 s.
    `gpu_left_out`: `HierarchicalCopyAllReduce` adds only the parts of an even number of GPUs, and raises nothing: a
    fault of TensorFlow (2.21: `num_devices // 2`), which drops the last GPU of three, five or seven.
    `none_works`: none of them gives the right sum on every GPU.
    `wrong_sum`: one of them gives a wrong sum, and raises nothing.
    `sum_elsewhere`: its sums are not on the GPUs that they should be on.
    `gpu_not_seen`, `other_gpu`: TensorFlow does not use the GPUs that it was given.
What to do
    `tf.distribute.MirroredStrategy(cross_device_ops=tf.distribute.ReductionToOneDevice())`, with one that works
    here. For NCCL: `pip install 'tensorflow[and-cuda]'` brings the library, `export NCCL_DEBUG=INFO` shows what it does
    and `export NCCL_P2P_DISABLE=1` goes round a broken connection.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from gpudiag import probe
from gpudiag.hostfacts import Facts
from gpudiag.model import Limits, Severity
from gpudiag.placement import short_device
from gpudiag.probe import Case, Context, Judgement, Kind, Needs, Raised, Scope
from gpudiag.probes.common import (
    GPU_NOT_SEEN,
    OTHER_GPU,
    Numbers,
    Replicas,
    in_time,
    judge_replicas,
    make_replicas,
    numbers,
)
from gpudiag.record import Record

PROBE = probe.Probe(needs=Needs(gpus=1), scope=Scope.ALL_GPUS)

OP_RAISED = Kind(
    "op_raised",
    Severity.WARNING,
    "{op} over {where} raised {error}; right sums: {working}",
    "Use one that works: tf.distribute.MirroredStrategy(cross_device_ops=tf.distribute.ReductionToOneDevice()). "
    "For NCCL: pip install 'tensorflow[and-cuda]'; export NCCL_DEBUG=INFO shows why it fails",
)
OP_HANGS = Kind(
    "op_hangs",
    Severity.WARNING,
    "{op} over {where} had not ended after {seconds:.0f} s; right sums: {working}",
    "Go round the connection between the GPUs: export NCCL_P2P_DISABLE=1. On bare metal an IOMMU or PCIe access "
    "control (ACS) that is switched on is the usual cause.",
)
GPU_LEFT_OUT = Kind(
    "gpu_left_out",
    Severity.WARNING,
    "{op} leaves out one of an odd number of GPUs: over {where} it gives {found}, it should be {expected}",
    "Use it with an even number of GPUs only. Here: "
    "tf.distribute.MirroredStrategy(cross_device_ops=tf.distribute.ReductionToOneDevice())",
)
NONE_WORKS = Kind(
    "none_works",
    Severity.FAIL,
    "none of {ops} gives the right sum over {where}",
    "Train on one GPU: export CUDA_VISIBLE_DEVICES=GPU-... (see nvidia-smi -L), and look for NVRM and Xid lines in "
    "`dmesg`.",
)
WRONG_SUM = Kind(
    "wrong_sum",
    Severity.FAIL,
    "{op} over {where} gives {found} on {device}, it should be {expected}",
    "Trust no training on these GPUs. Look for their errors in `nvidia-smi -q -d ECC` and `dmesg | grep Xid`.",
)
SUM_ELSEWHERE = Kind(
    "sum_elsewhere",
    Severity.FAIL,
    "the sums of {op} are on {found}, they should be on {expected}",
    "Call tf.config.set_soft_device_placement(False) to get an error where a device is not there.",
)

TIMEOUT_S = 10.0
NCCL = "NcclAllReduce"
# NCCL last: it is the one that hangs, and nothing can be computed after that.
OPS = ("HierarchicalCopyAllReduce", "ReductionToOneDevice", NCCL)
VALUES = (1.0, 2.0, 3.0, 4.0, 5.0)
"""What the first replica adds; the others add 1, 2, ... more."""


class Run(Record):
    """One of the ways to reduce."""

    sums: dict[str, Numbers]
    """The device whose memory holds the sum, and the sum; empty where it raised."""
    raised: Raised | None


class Reading(probe.Reading):
    """What each of them gave."""

    replicas: Replicas
    runs: dict[str, Run]
    """Those that were tried."""

    def figure(self) -> str:
        if not self.replicas.made:
            return self.replicas.where
        right = len(_working(self))
        without = "" if NCCL in self.runs or len(self.replicas.given) == 1 else " (without NCCL)"
        return f"{right} of {len(self.runs)} right on {self.replicas.where}{without}"


def measure(ctx: Context) -> Reading:
    replicas = make_replicas(ctx)
    runs: dict[str, Run] = {}
    if replicas.made:
        nccl = len(ctx.gpus) > 1 and not any(gpu.simulated for gpu in ctx.gpus)
        for op in OPS if nccl else OPS[:-1]:
            sums: dict[str, Numbers] = {}
            raised = in_time(ctx, TIMEOUT_S, partial(_reduce, ctx.tf, op, sums))
            runs[op] = Run({} if raised else sums, raised)
            if raised is not None and raised.type == "TimeoutError":
                break
    return Reading(replicas, runs)


def _reduce(tf: Any, op: str, sums: dict[str, Numbers]) -> None:
    strategy = tf.distribute.MirroredStrategy(cross_device_ops=getattr(tf.distribute, op)())

    def replica() -> Any:
        context = tf.distribute.get_replica_context()
        return context.all_reduce("sum", VALUES + tf.cast(context.replica_id_in_sync_group, tf.float32))

    @tf.function  # type: ignore[untyped-decorator]
    def add() -> Any:
        return strategy.run(replica)

    for one in strategy.experimental_local_results(add()):
        sums[short_device(one.backing_device)] = numbers(one)


def _expected(count: int) -> Numbers:
    """Return the sum over the first ``count`` replicas."""
    return tuple(value * count + count * (count - 1) / 2 for value in VALUES)


def _working(reading: Reading) -> list[str]:
    right = dict.fromkeys(reading.replicas.made, _expected(len(reading.replicas.made)))
    return [op for op, run in reading.runs.items() if run.sums == right]


def judge(reading: Reading, facts: Facts, limits: Limits) -> Iterator[Judgement]:
    replicas, where = reading.replicas, reading.replicas.where
    unusable = tuple(judge_replicas(replicas))
    yield from unusable
    if unusable:
        return
    working = ", ".join(_working(reading)) or "none"
    expected = _expected(len(replicas.made))
    for op, run in reading.runs.items():
        if run.raised is not None and run.raised.type == "TimeoutError":
            yield OP_HANGS.found(op=op, where=where, seconds=TIMEOUT_S, working=working)
        elif run.raised is not None:
            yield OP_RAISED.found(op=op, where=where, error=run.raised.brief, working=working)
        elif set(run.sums) != set(replicas.made):
            yield SUM_ELSEWHERE.found(op=op, found=", ".join(run.sums), expected=", ".join(replicas.made))
        wrong = {device: sums for device, sums in run.sums.items() if sums != expected}
        count = len(replicas.made)
        if count % 2 and set(wrong) == set(replicas.made) and set(wrong.values()) == {_expected(count - 1)}:
            found = str(list(_expected(count - 1)))
            yield GPU_LEFT_OUT.found(op=op, where=where, found=found, expected=str(list(expected)))
            continue
        for device, sums in wrong.items():
            found = str(list(sums))
            yield WRONG_SUM.found(op=op, where=where, device=device, found=found, expected=str(list(expected)))
    if not _working(reading):
        yield NONE_WORKS.found(ops=", ".join(reading.runs), where=where)


_FIRST, _SECOND, _THIRD = "0000:3b:00.0", "0000:af:00.0", "0000:d8:00.0"
_TWO = Replicas((_FIRST, _SECOND), 2, {"GPU:0": _FIRST, "GPU:1": _SECOND})
_SUM = (3.0, 5.0, 7.0, 9.0, 11.0)
_RIGHT = Run({"GPU:0": _SUM, "GPU:1": _SUM}, None)
_FAILED = Run({}, Raised("InternalError", "NCCL: unhandled system error."))


def _case(name: str, *expect: str, nccl: Run | None = _RIGHT, others: Run = _RIGHT) -> Case:
    runs = dict.fromkeys(OPS[:-1], others) | ({} if nccl is None else {NCCL: nccl})
    return Case(name, expect, Reading(_TWO, runs))


CASES = (
    _case("all three work"),
    _case("without NCCL", nccl=None),
    Case(
        "one GPU, split",
        (),
        Reading(
            Replicas((_FIRST,), 1, {"GPU:0": _FIRST, "GPU:1": _FIRST}),
            dict.fromkeys(OPS[:-1], _RIGHT),
        ),
    ),
    _case("NCCL fails", OP_RAISED.name, nccl=_FAILED),
    _case("NCCL hangs", OP_HANGS.name, nccl=Run({}, Raised("TimeoutError", "it had not ended after 10 s"))),
    _case("all fail", *[OP_RAISED.name] * 3, NONE_WORKS.name, nccl=_FAILED, others=_FAILED),
    Case(
        "three GPUs",
        (GPU_LEFT_OUT.name,),
        Reading(
            Replicas((_FIRST, _SECOND, _THIRD), 3, {"GPU:0": _FIRST, "GPU:1": _SECOND, "GPU:2": _THIRD}),
            {
                op: Run(dict.fromkeys(("GPU:0", "GPU:1", "GPU:2"), _expected(added)), None)
                for op, added in zip(OPS, (2, 3, 3), strict=True)
            },
        ),
    ),
    _case("a wrong sum", WRONG_SUM.name, nccl=Run({"GPU:0": _SUM, "GPU:1": VALUES}, None)),
    _case("one sum only", SUM_ELSEWHERE.name, nccl=Run({"GPU:0": _SUM}, None)),
    Case(
        "both devices on one GPU",
        (OTHER_GPU.name,),
        Reading(Replicas((_FIRST, _SECOND), 2, {"GPU:0": _FIRST, "GPU:1": _FIRST}), {}),
    ),
    Case("TensorFlow lists one of two", (GPU_NOT_SEEN.name,), Reading(Replicas((_FIRST, _SECOND), 1, {}), {})),
)
