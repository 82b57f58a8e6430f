"""Under load for as long as you say, the GPUs add their gradients right, by NCCL and by copies.

What it does
    Adds a vector of all GPUs again and again for a tenth of the time of `--for`, by NCCL and by TensorFlow's own copies
    (`ReductionToOneDevice`), compares the sum on every GPU bit by bit with the right one, and compares the end of the
    time with its beginning. On simulated GPUs a communicator of NCCL is asked for, and TensorFlow's own ring does the
    rest.
Why it matters
    Every step of a training on several GPUs ends with this sum. A link that fails when it is warm, or a GPU that the
    others wait for, shows here, and a sum that is wrong raises no error.
What to do
    `NCCL_DEBUG=INFO gpudiag check load.all_reduce -v` shows which way NCCL takes between the GPUs. `gpudiag check
    libraries.nccl distribution.reduction` tries each way once, in more types.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpudiag import fix, probe
from gpudiag.knowledge.variables import FORCE_GROWTH
from gpudiag.model.facts import Facts
from gpudiag.probe import MIB, Beside, Context, Findings, fail, warn
from gpudiag.probes.common import create_devices
from gpudiag.probes.under_load import LoadFaults, Work, early_end, slowing, spend, wrong_results

PROBE = probe.Probe(
    needs=probe.Needs(gpus=2, free_bytes=512 * MIB),
    scope=probe.Scope.ALL_GPUS,
    exclusive=True,
    stress=0.1,
    env={FORCE_GROWTH: "true"},  # by default TensorFlow takes nearly all memory that is free
)


ALL = "all GPUs"


class Fault(LoadFaults, probe.ReplicaFaults):
    wrong = fail(
        "{work}: {wrong} in {results} sums",
        means="A sum over all GPUs was wrong, and no error was raised.",
        do=probe.trust_no("training on these GPUs"),
    )
    slower_with_time = warn(
        "{percent} % slower in the last third of the time than in the first",
        means="Sums over all GPUs became slower under load.",
        do=fix.nvidia_smi("clocks and why they are lowered", "-q -d PERFORMANCE"),
    )


class Reading(probe.LoadReading):
    """The slices of each way to add; their rate is in bytes of a replica's vector."""

    made: dict[str, str] = {}
    """PCI bus id of each device (``GPU:0``), from TensorFlow's ``Created device`` lines."""

    def figure(self) -> str:
        return f"over {len(self.given)} GPUs: {self.outcome_of('sums')}"


def measure(ctx: Context) -> Reading:
    tf = ctx.tf
    size = (1 if any(gpu.simulated for gpu in ctx.gpus) else 64) * MIB
    ctx.list_gpus()
    made = create_devices(ctx)
    copies = tf.distribute.MirroredStrategy(cross_device_ops=tf.distribute.ReductionToOneDevice())
    works = [
        Work("all-reduce by NCCL", float(size), _by_nccl(tf, size // 4), lambda: "", ALL),
        Work("all-reduce by copies", float(size), _by_copies(tf, copies, size // 4), lambda: "", ALL),
    ]
    ctx.load.start()
    spend(ctx.load, works, ctx.load.seconds, alone=False)
    return Reading(made=made)


def _vectors(tf: Any, strategy: Any, length: int) -> tuple[Callable[[], Any], Any]:
    """Return a function that makes a replica's vector, and the sum of those of all replicas.

    They are whole numbers that float32 can add in any order without rounding.
    """
    count = strategy.num_replicas_in_sync
    ramp = tf.cast(tf.range(length) % 1000, tf.float32)

    def own() -> Any:
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        return ramp + tf.cast(replica, tf.float32)

    return own, ramp * count + count * (count - 1) / 2


def _by_nccl(tf: Any, length: int) -> Callable[[], Any]:
    strategy = tf.distribute.MirroredStrategy()
    own, right = _vectors(tf, strategy, length)
    nccl = tf.distribute.experimental.CommunicationOptions(
        implementation=tf.distribute.experimental.CommunicationImplementation.NCCL
    )

    @tf.function  # type: ignore[untyped-decorator]
    def traced() -> Any:
        def replica() -> Any:
            total = tf.distribute.get_replica_context().all_reduce("sum", own(), nccl)
            return tf.math.count_nonzero(tf.not_equal(total, right))

        return strategy.reduce("sum", strategy.run(replica), axis=None)

    def step() -> Any:
        return traced()

    step()  # the first call traces it
    return step


def _by_copies(tf: Any, strategy: Any, length: int) -> Callable[[], Any]:
    own, right = _vectors(tf, strategy, length)

    @tf.function  # type: ignore[untyped-decorator]
    def traced() -> Any:
        values = strategy.run(own)
        totals = strategy.extended.batch_reduce_to("sum", [(values, values)])
        wrong = [
            tf.math.count_nonzero(tf.not_equal(total, right))
            for total in strategy.experimental_local_results(totals[0])
        ]
        return tf.add_n(wrong)

    def step() -> Any:
        return traced()

    step()  # the first call traces it
    return step


def judge(reading: Reading, facts: Facts, beside: Beside) -> Findings:
    del facts, beside
    yield from wrong_results(reading, Fault.wrong)
    fell = slowing(reading)
    if fell is not None and fell.counts:
        yield Fault.slower_with_time.found(percent=round(100 * fell.value))
    yield from early_end(reading)
