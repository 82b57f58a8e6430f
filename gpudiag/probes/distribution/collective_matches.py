"""An all-reduce gives every GPU the right sum, in several types and in odd sizes.

What it does
    Adds up values that differ from replica to replica, and that are exact in every type, with
    `tf.distribute.get_replica_context().all_reduce` in a `tf.function`: float32, float16 and int32, with 1, 1023 and
    65537 elements. It compares every element on every GPU. Separate GPUs do it with NCCL, a single GPU is split into
    two logical devices, where TensorFlow uses its ring. int32 is added on one device and sent to the others:
    `MirroredStrategy` knows no other way for it.
Why it matters
    Every step of a training on several GPUs adds its gradients so. A sum that is wrong in some elements raises nothing;
    the training is only worse. Odd sizes are where blocks of the transfer end in the middle.
What a failure means
    `wrong_sum`: elements of the sum are wrong.
    `sum_elsewhere`: the sums are not on the GPUs that they should be on.
    `collective_hangs`: a GPU did not take part within 20 s.
    `collective_raised`: the collective failed; the message has TensorFlow's own words.
    `gpu_not_seen`, `other_gpu`: TensorFlow does not use the GPUs that it was given.
What to do
    `export NCCL_DEBUG=INFO` shows what NCCL does; `export NCCL_P2P_DISABLE=1` goes round a broken connection. To get an
    error and not a program that hangs, give the collective a time limit:
    `context.all_reduce("sum", x, options=tf.distribute.experimental.CommunicationOptions(timeout_seconds=60.0))`.
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
    Replicas,
    in_time,
    judge_replicas,
    make_replicas,
)
from gpudiag.record import Record

PROBE = probe.Probe(needs=Needs(gpus=1), scope=Scope.ALL_GPUS)

WRONG_SUM = Kind(
    "wrong_sum",
    Severity.FAIL,
    "{wrong} of {count} elements of an all-reduce in {dtype} over {where} are wrong, most on {device}",
    "Trust no training on these GPUs. Look for their errors in `nvidia-smi -q -d ECC` and `dmesg | grep Xid`, and go "
    "round the connection between them: export NCCL_P2P_DISABLE=1",
)
SUM_ELSEWHERE = Kind(
    "sum_elsewhere",
    Severity.FAIL,
    "the sums of an all-reduce in {dtype} are on {found}, they should be on {expected}",
    "Call tf.config.set_soft_device_placement(False) to get an error where a device is not there.",
)
COLLECTIVE_HANGS = Kind(
    "collective_hangs",
    Severity.FAIL,
    "an all-reduce over {where} had not ended after {seconds:.0f} s",
    "Go round the connection between the GPUs: export NCCL_P2P_DISABLE=1; export NCCL_DEBUG=INFO shows where it stops. "
    "On bare metal an IOMMU or PCIe access control (ACS) that is switched on is the usual cause.",
)
COLLECTIVE_RAISED = Kind(
    "collective_raised",
    Severity.FAIL,
    "an all-reduce over {where} raised {error}",
    "export NCCL_DEBUG=INFO shows why NCCL fails. Without NCCL: "
    "tf.distribute.MirroredStrategy(cross_device_ops=tf.distribute.ReductionToOneDevice())",
)

TIMEOUT_S = 20.0
DTYPES = ("float32", "float16", "int32")
SIZES = (1, 1023, 65537)
IN_HOST_MEMORY = "int32"  # what a function returns of this type lies in host memory, on CPU:0, whatever computed it


class Sum(Record):
    """The sum that one GPU has."""

    dtype: str
    size: int
    """Elements."""
    device: str
    """The device whose memory holds it."""
    wrong: int
    """Elements that differ from the sum known beforehand."""


class Reading(probe.Reading):
    """The sums of all GPUs."""

    replicas: Replicas
    sums: tuple[Sum, ...] = ()
    """Empty where it raised, or where TensorFlow lists too few GPUs."""
    raised: Raised | None = None

    def figure(self) -> str:
        if not self.sums:
            return self.replicas.where
        right = sum(one.wrong == 0 for one in self.sums)
        return f"{right} of {len(self.sums)} sums right on {self.replicas.where}"


def measure(ctx: Context) -> Reading:
    tf = ctx.tf
    replicas = make_replicas(ctx)
    if not replicas.made:
        return Reading(replicas)
    sums: list[Sum] = []

    def program() -> None:
        strategy = tf.distribute.MirroredStrategy()
        # A collective that waits for a GPU ends with an error then, and the process stays usable.
        limited = tf.distribute.experimental.CommunicationOptions(timeout_seconds=TIMEOUT_S)

        def replica() -> Any:
            context = tf.distribute.get_replica_context()
            number = context.replica_id_in_sync_group
            # One by one: a list that holds more than one int32 tensor is refused (ValueError, measured on 2.21).
            return [
                [context.all_reduce("sum", tf.cast(_values(tf, size) + number, dtype), limited) for size in SIZES]
                for dtype in DTYPES
            ]

        @tf.function  # type: ignore[untyped-decorator]
        def add() -> Any:
            return strategy.run(replica)

        count = strategy.num_replicas_in_sync
        for dtype, added in zip(DTYPES, add(), strict=True):
            for size, everywhere in zip(SIZES, added, strict=True):
                with tf.device("/CPU:0"):
                    expected = (_values(tf, size) * count + count * (count - 1) // 2).numpy()
                for one in strategy.experimental_local_results(everywhere):
                    wrong = int((one.numpy() != expected).sum())
                    sums.append(Sum(dtype, size, short_device(one.backing_device), wrong))

    raised = in_time(ctx, TIMEOUT_S + 10, program)
    return Reading(replicas, () if raised else tuple(sums), raised)


def _values(tf: Any, size: int) -> Any:
    """Return what the first replica adds; the others add 1, 2, ... more. Sums stay far below 2048, exact in float16."""
    return tf.range(size) % 7 + 1


def judge(reading: Reading, facts: Facts, limits: Limits) -> Iterator[Judgement]:
    replicas, raised = reading.replicas, reading.raised
    unusable = tuple(judge_replicas(replicas))
    yield from unusable
    if unusable:
        return
    if raised is not None and raised.type in {"TimeoutError", "DeadlineExceededError"}:
        yield COLLECTIVE_HANGS.found(where=replicas.where, seconds=TIMEOUT_S)
    elif raised is not None:
        yield COLLECTIVE_RAISED.found(where=replicas.where, error=raised.brief)
    for dtype in dict.fromkeys(one.dtype for one in reading.sums):
        sums = [one for one in reading.sums if one.dtype == dtype]
        devices = {one.device for one in sums}
        if devices != set(replicas.made) and dtype != IN_HOST_MEMORY:
            found, expected = ", ".join(sorted(devices)), ", ".join(replicas.made)
            yield SUM_ELSEWHERE.found(dtype=dtype, found=found, expected=expected)
        wrong = sum(one.wrong for one in sums)
        if wrong:
            device = max(sums, key=lambda one: one.wrong).device
            count = sum(one.size for one in sums)
            yield WRONG_SUM.found(wrong=wrong, count=count, dtype=dtype, where=replicas.where, device=device)


_FIRST, _SECOND = "0000:3b:00.0", "0000:af:00.0"
_TWO = Replicas((_FIRST, _SECOND), 2, {"GPU:0": _FIRST, "GPU:1": _SECOND})
_SPLIT = Replicas((_FIRST,), 1, {"GPU:0": _FIRST, "GPU:1": _FIRST})


def _sums(second: str = "GPU:1", wrong: int = 0) -> tuple[Sum, ...]:
    return tuple(
        one
        for dtype in DTYPES
        for one in (
            Sum(dtype, 1023, "GPU:0", 0),
            Sum(dtype, 1023, second if dtype == "float16" else "GPU:1", wrong if dtype == "float16" else 0),
        )
    )


CASES = (
    Case("two GPUs", (), Reading(_TWO, _sums())),
    Case("one GPU, split", (), Reading(_SPLIT, _sums())),
    Case("the end of a block is lost", (WRONG_SUM.name,), Reading(_TWO, _sums(wrong=3))),
    Case("both sums on the first", (SUM_ELSEWHERE.name,), Reading(_TWO, _sums(second="GPU:0"))),
    Case(
        "a GPU does not come",
        (COLLECTIVE_HANGS.name,),
        Reading(_TWO, raised=Raised("DeadlineExceededError", "Collective has timed out waiting for other workers.")),
    ),
    Case("no end", (COLLECTIVE_HANGS.name,), Reading(_TWO, raised=Raised("TimeoutError", "it had not ended"))),
    Case(
        "NCCL fails",
        (COLLECTIVE_RAISED.name,),
        Reading(_TWO, raised=Raised("InternalError", "Collective ops is aborted by: NCCL: unhandled system error.")),
    ),
    Case(
        "both devices on one GPU",
        (OTHER_GPU.name,),
        Reading(Replicas((_FIRST, _SECOND), 2, {"GPU:0": _FIRST, "GPU:1": _FIRST})),
    ),
    Case("TensorFlow lists one of two", (GPU_NOT_SEEN.name,), Reading(Replicas((_FIRST, _SECOND), 1, {}))),
)
