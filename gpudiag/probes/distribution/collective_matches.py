"""An all-reduce gives every GPU the right sum, in several types and in odd sizes.

What it does
    Adds up values that differ from replica to replica, and that are exact in every type, with
    `tf.distribute.get_replica_context().all_reduce` in a `tf.function`: float32, float16 and int32, with 1, 1023 and
    1048577 elements; with fewer than the last on more than eight GPUs, because one of them adds all parts of int32. It
    compares every element on every GPU. Separate GPUs do it with NCCL, a single GPU is split into
    two logical devices, where TensorFlow uses its ring. int32 is added on one device and sent to the others:
    `MirroredStrategy` knows no other way for it.
Why it matters
    Every training step on several GPUs adds its gradients this way. A sum that is wrong in some elements raises
    nothing; the training is only worse. Odd sizes need transfers with incomplete blocks.
What to do
    `export NCCL_DEBUG=INFO` shows what NCCL does; `export NCCL_P2P_DISABLE=1` avoids a broken connection. To get an
    error and not a program that hangs, give the collective a time limit:
    `context.all_reduce("sum", x, options=tf.distribute.experimental.CommunicationOptions(timeout_seconds=60.0))`.
"""

from __future__ import annotations

from typing import Any

from gpudiag import fix, probe
from gpudiag.knowledge.placement import short_device
from gpudiag.probe import Context, Findings, Raised, fail
from gpudiag.probes.common import COLLECTIVE_S, ReplicaReading, in_time, make_replicas
from gpudiag.record import Record

PROBE = probe.Probe(needs=probe.Needs(gpus=1), scope=probe.Scope.ALL_GPUS, sampled=True)


class Fault(probe.ReplicaFaults):
    wrong_sum = fail(
        "{wrong} of {count} elements of an all-reduce in {dtype} over {where} are wrong, most on {device}",
        means="An all-reduce over the GPUs gives wrong sums.",
        do=(
            *probe.trust_no("training on these GPUs"),
            fix.export("NCCL_P2P_DISABLE", "1", "avoid the direct connection between the GPUs"),
        ),
    )
    sum_elsewhere = fail(
        "the sums of an all-reduce in {dtype} are on {found}, they should be on {expected}",
        means="The sums of an all-reduce are on other devices than its GPUs.",
        do=fix.edit("tf.config.set_soft_device_placement(False)", "an error, if a device is not there"),
    )
    collective_hangs = fail(
        "an all-reduce over {where} had not ended after {seconds:.0f} s",
        means="An all-reduce over the GPUs did not end.",
        do=(
            fix.export("NCCL_P2P_DISABLE", "1", "avoid the direct connection between the GPUs"),
            fix.export("NCCL_DEBUG", "INFO", "shows where it stops"),
            fix.note("on bare metal an IOMMU or PCIe access control (ACS) that is switched on is the usual cause"),
        ),
    )
    collective_raised = fail(
        "an all-reduce over {where} raised {error}",
        means="An all-reduce over the GPUs raised an error.",
        do=fix.edit(
            "tf.distribute.MirroredStrategy(cross_device_ops=tf.distribute.ReductionToOneDevice())",
            "export NCCL_DEBUG=INFO shows why NCCL fails. Without NCCL",
        ),
    )


DTYPES = ("float32", "float16", "int32")
IN_HOST_MEMORY = "int32"  # what a function returns of this type lies in host memory, on CPU:0, whatever computed it


def _sizes(count: int) -> tuple[int, ...]:
    """Return the lengths of the vectors that ``count`` devices add.

    One device receives all int32 vectors: 32 MiB at most.
    """
    return 1, 1023, min(1 << 20, (8 << 20) // count) + 1


class CollectiveSum(Record):
    """The sum on one GPU."""

    dtype: str
    size: int
    """The number of elements."""
    device: str
    """The device whose memory holds it."""
    wrong: int
    """Elements that differ from the sum known beforehand."""


class Reading(ReplicaReading):
    """The sums of all GPUs."""

    sums: tuple[CollectiveSum, ...]
    """The sums; empty if the all-reduce raised."""
    raised: Raised | None

    def figure(self) -> str:
        if not self.sums:
            return self.where
        right = sum(total.wrong == 0 for total in self.sums)
        return f"{right} of {len(self.sums)} sums right on {self.where}"


def measure(ctx: Context) -> Reading:
    tf = ctx.tf
    made = make_replicas(ctx)
    sums: list[CollectiveSum] = []

    def program() -> None:
        strategy = tf.distribute.MirroredStrategy()
        # A collective that waits for a GPU ends with an error then, and the process stays usable.
        count = strategy.num_replicas_in_sync
        sizes = _sizes(count)
        limited = tf.distribute.experimental.CommunicationOptions(timeout_seconds=COLLECTIVE_S)

        def replica() -> Any:
            context = tf.distribute.get_replica_context()
            number = context.replica_id_in_sync_group
            # One by one: a list that holds more than one int32 tensor is refused (ValueError, measured on 2.21).
            return [
                [context.all_reduce("sum", tf.cast(_values(tf, size) + number, dtype), limited) for size in sizes]
                for dtype in DTYPES
            ]

        @tf.function(autograph=False)  # type: ignore[untyped-decorator]
        def add() -> Any:
            return strategy.run(replica)

        for dtype, added in zip(DTYPES, add(), strict=True):
            for size, everywhere in zip(sizes, added, strict=True):
                with tf.device("/CPU:0"):
                    expected = (_values(tf, size) * count + count * (count - 1) // 2).numpy()
                for result in strategy.experimental_local_results(everywhere):
                    wrong = int((result.numpy() != expected).sum())
                    sums.append(CollectiveSum(dtype, size, short_device(result.backing_device), wrong))

    raised = in_time(ctx, COLLECTIVE_S + 10, program)
    return Reading(() if raised else tuple(sums), raised, made=made)


def _values(tf: Any, size: int) -> Any:
    """Return the values that the first replica adds; the others add 1, 2, ... more. Sums stay far below 2048, exact in
    float16."""
    return tf.range(size) % 7 + 1


def judge(reading: Reading) -> Findings:
    raised, where = reading.raised, reading.where
    if raised is not None and raised.type in {"TimeoutError", "DeadlineExceededError"}:
        yield Fault.collective_hangs.found(where=where, seconds=COLLECTIVE_S)
    elif raised is not None:
        yield Fault.collective_raised.found(where=where, error=raised.brief)
    for dtype in dict.fromkeys(total.dtype for total in reading.sums):
        sums = [total for total in reading.sums if total.dtype == dtype]
        devices = {total.device for total in sums}
        if devices != set(reading.made) and dtype != IN_HOST_MEMORY:
            found, expected = ", ".join(sorted(devices)), ", ".join(reading.made)
            yield Fault.sum_elsewhere.found(dtype=dtype, found=found, expected=expected)
        wrong = sum(total.wrong for total in sums)
        if wrong:
            device = max(sums, key=lambda total: total.wrong).device
            count = sum(total.size for total in sums)
            yield Fault.wrong_sum.found(wrong=wrong, count=count, dtype=dtype, where=where, device=device)
