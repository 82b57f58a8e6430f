"""Each way of TensorFlow to reduce over GPUs gives the right sum on every GPU.

What it does
    Makes a `tf.distribute.MirroredStrategy` with each of the `cross_device_ops` `HierarchicalCopyAllReduce`,
    `ReductionToOneDevice` and `NcclAllReduce`, and adds a vector that differs from replica to replica. A single GPU is
    split into two logical devices. NCCL needs separate GPUs, so `NcclAllReduce` is left out on one GPU, and on
    simulated GPUs, which have no NCCL.
Why it matters
    Where NCCL does not work, the two others often do: they copy between GPUs through TensorFlow's own streams. A sum
    that is wrong raises nothing; the training is only worse.
What to do
    `tf.distribute.MirroredStrategy(cross_device_ops=tf.distribute.ReductionToOneDevice())`, with one that works
    here. For NCCL: `pip install 'tensorflow[and-cuda]'` brings the library, `export NCCL_DEBUG=INFO` shows what it does
    and `export NCCL_P2P_DISABLE=1` avoids a broken connection.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from gpudiag import fix, probe
from gpudiag.knowledge.placement import short_device
from gpudiag.probe import Context, Findings, Raised, fail, warn
from gpudiag.probes.common import COLLECTIVE_S, Numbers, ReplicaReading, in_time, make_replicas, numbers
from gpudiag.record import Record

PROBE = probe.Probe(needs=probe.Needs(gpus=1), scope=probe.Scope.ALL_GPUS, sampled=True)


class Fault(probe.ReplicaFaults):
    op_raised = warn(
        "{op} over {where} raised {error}; these gave right sums: {working}",
        means="A cross_device_ops of MirroredStrategy raised an error; others gave right sums.",
        do=(
            fix.edit(
                "tf.distribute.MirroredStrategy(cross_device_ops=tf.distribute.ReductionToOneDevice())",
                "use one that works",
            ),
            fix.install("tensorflow[and-cuda]", note="brings NCCL"),
            fix.export("NCCL_DEBUG", "INFO", "shows why NCCL fails"),
        ),
    )
    op_hangs = warn(
        "{op} over {where} had not ended after {seconds:.0f} s; right sums: {working}",
        means="A cross_device_ops of MirroredStrategy did not end.",
        do=(
            fix.export("NCCL_P2P_DISABLE", "1", "avoid the direct connection between the GPUs"),
            fix.note("on bare metal an IOMMU or PCIe access control (ACS) that is switched on is the usual cause"),
        ),
    )
    gpu_left_out = warn(
        "{op} leaves out one of an odd number of GPUs: over {where} it gives {found}, it should be {expected}",
        means=(
            "`HierarchicalCopyAllReduce` adds only the parts of an even number of GPUs, and raises nothing: a "
            "fault of TensorFlow (2.21: `num_devices // 2`), which drops the last GPU of three, five or "
            "seven."
        ),
        do=fix.edit(
            "tf.distribute.MirroredStrategy(cross_device_ops=tf.distribute.ReductionToOneDevice())",
            "use it with an even number of GPUs only. Here",
        ),
    )
    none_works = fail(
        "none of {ops} gives the right sum over {where}",
        means="No cross_device_ops of MirroredStrategy gives the right sum.",
        do=(
            fix.export("CUDA_VISIBLE_DEVICES", "GPU-...", "train on one GPU; nvidia-smi -L lists them"),
            probe.KERNEL_LOG,
        ),
    )
    wrong_sum = fail(
        "{op} over {where} gives {found} on {device}, it should be {expected}",
        means="One of them gives a wrong sum, and raises nothing.",
        do=probe.trust_no("training on these GPUs"),
    )
    sum_elsewhere = fail(
        "the sums of {op} are on {found}, they should be on {expected}",
        means="The sums of a cross_device_ops are on other devices than the GPUs.",
        do=fix.edit("tf.config.set_soft_device_placement(False)", "an error, if a device is not there"),
    )


NCCL = "NcclAllReduce"
# NCCL last: it is the one that hangs, and nothing can be computed after that.
OPS = ("HierarchicalCopyAllReduce", "ReductionToOneDevice", NCCL)
VALUES = (1.0, 2.0, 3.0, 4.0, 5.0)
"""The values that the first replica adds; the others add 1, 2, ... more."""


class Reduction(Record):
    """A reduction with one of TensorFlow's `cross_device_ops`."""

    sums: dict[str, Numbers]
    """The sum, by the device whose memory holds it; empty if the reduction raised."""
    raised: Raised | None


class Reading(ReplicaReading):
    """The result of each way to reduce."""

    runs: dict[str, Reduction]
    """The ways to reduce that were tried."""

    def figure(self) -> str:
        right = len(_working(self))
        without = "" if NCCL in self.runs or len(self.given) == 1 else " (without NCCL)"
        return f"{right} of {len(self.runs)} right on {self.where}{without}"


def measure(ctx: Context) -> Reading:
    made = make_replicas(ctx)
    runs: dict[str, Reduction] = {}
    nccl = len(ctx.gpus) > 1 and not any(gpu.simulated for gpu in ctx.gpus)
    for op in OPS if nccl else OPS[:-1]:
        sums: dict[str, Numbers] = {}
        raised = in_time(ctx, COLLECTIVE_S, partial(_reduce, ctx.tf, op, sums))
        runs[op] = Reduction({} if raised else sums, raised)
        if raised is not None and raised.type == "TimeoutError":
            break
    return Reading(runs, made=made)


def _reduce(tf: Any, op: str, sums: dict[str, Numbers]) -> None:
    strategy = tf.distribute.MirroredStrategy(cross_device_ops=getattr(tf.distribute, op)())

    def replica() -> Any:
        context = tf.distribute.get_replica_context()
        return context.all_reduce("sum", VALUES + tf.cast(context.replica_id_in_sync_group, tf.float32))

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def add() -> Any:
        return strategy.run(replica)

    for result in strategy.experimental_local_results(add()):
        sums[short_device(result.backing_device)] = numbers(result)


def _expected(count: int) -> Numbers:
    """Return the sum over the first ``count`` replicas."""
    return tuple(value * count + count * (count - 1) / 2 for value in VALUES)


def _working(reading: Reading) -> list[str]:
    right = dict.fromkeys(reading.made, _expected(len(reading.made)))
    return [op for op, run in reading.runs.items() if run.sums == right]


def judge(reading: Reading) -> Findings:
    where, made = reading.where, reading.made
    working = ", ".join(_working(reading)) or "none"
    expected = _expected(len(made))
    for op, run in reading.runs.items():
        if run.raised is not None and run.raised.type == "TimeoutError":
            yield Fault.op_hangs.found(op=op, where=where, seconds=COLLECTIVE_S, working=working)
        elif run.raised is not None:
            yield Fault.op_raised.found(op=op, where=where, error=run.raised.brief, working=working)
        elif set(run.sums) != set(made):
            yield Fault.sum_elsewhere.found(op=op, found=", ".join(run.sums), expected=", ".join(made))
        wrong = {device: sums for device, sums in run.sums.items() if sums != expected}
        count = len(made)
        if count % 2 and set(wrong) == set(made) and set(wrong.values()) == {_expected(count - 1)}:
            found = str(list(_expected(count - 1)))
            yield Fault.gpu_left_out.found(op=op, where=where, found=found, expected=str(list(expected)))
            continue
        for device, sums in wrong.items():
            found = str(list(sums))
            yield Fault.wrong_sum.found(op=op, where=where, device=device, found=found, expected=str(list(expected)))
    if not _working(reading):
        yield Fault.none_works.found(ops=", ".join(reading.runs), where=where)
