"""NCCL adds and gathers between all GPUs, in each type that gradients have.

What it does
    Lets every GPU give a vector to an all-reduce and to an all-gather through NCCL, in float32, float64 and float16
    (TensorFlow refuses bfloat16 between GPUs), and compares what each GPU has then with what it should have. On
    simulated GPUs a communicator of NCCL is asked for, and TensorFlow's own ring does the rest. `distribution` has the
    strategies, and other sizes.
Why it matters
    Training on several GPUs adds the gradients by NCCL. It is opened at the first all-reduce, and needs more than a
    GPU: shared memory, sockets, access from GPU to GPU. If one of them is missing, it fails or waits for ever.
What to do
    Have NCCL name the reason: `NCCL_DEBUG=WARN gpudiag check libraries.nccl -v`. `export NCCL_P2P_DISABLE=1` and
    `export NCCL_SHM_DISABLE=1` show whether a way between the GPUs is at fault. In a container: `docker run
    --ipc=host`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpudiag import probe
from gpudiag.knowledge.placement import short_device
from gpudiag.probe import Context, Findings
from gpudiag.probes import comparison
from gpudiag.probes.common import create_devices, in_time
from gpudiag.probes.comparison import HALF, SINGLE, Check, difference, normal, unless_simulated

PROBE = probe.Probe(needs=probe.Needs(gpus=2, free_bytes=comparison.NEEDS.free_bytes), scope=probe.Scope.ALL_GPUS)


class Fault(comparison.LibraryFaults):
    pass


class Reading(comparison.LibraryReading):
    """The values on each GPU after each collective."""


TIMEOUT_S = 40
GATHERING = 1 << 20
"""The group number and the collective number of the gathering: strategies count theirs from 1."""
MOST = {"float32": SINGLE, "float64": SINGLE, "float16": HALF}


def measure(ctx: Context) -> Reading:
    ctx.list_gpus()
    made = create_devices(ctx)
    checks: list[Check] = []
    raised = in_time(ctx, TIMEOUT_S, lambda: checks.extend(_checks(ctx.tf)))
    if raised is not None:  # of all GPUs at once
        checks = [Check("a collective", device, raised=raised) for device in made][:1]
    return Reading(made=made, checks=tuple(checks), unchecked=unless_simulated(ctx, "NCCL's own copies"))


def _checks(tf: Any) -> Iterator[Check]:
    strategy = tf.distribute.MirroredStrategy()
    count = strategy.num_replicas_in_sync
    wide = normal(count, 64)
    nccl = tf.distribute.experimental.CommunicationOptions(
        implementation=tf.distribute.experimental.CommunicationImplementation.NCCL, timeout_seconds=TIMEOUT_S
    )

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def exchange() -> Any:
        def replica() -> Any:
            context = tf.distribute.get_replica_context()
            mine = tf.gather(tf.constant(wide), context.replica_id_in_sync_group)
            sums = [context.all_reduce("sum", tf.cast(mine, type_name), nccl) for type_name in MOST]
            with tf.control_dependencies(sums):  # NCCL needs one order on all GPUs
                gathered = _gather(tf, tf.cast(mine, tf.float32)[None], count)
            return [*sums, gathered]

        return strategy.run(replica)

    *sums, gathered = exchange()
    expected = [(f"sum, {name}", wide.sum(0), most) for name, most in MOST.items()]
    for made, (name, right, most) in zip((*sums, gathered), (*expected, ("gathering", wide, SINGLE)), strict=True):
        for number, tensor in enumerate(strategy.experimental_local_results(made)):
            where = short_device(tensor.backing_device)
            yield Check(name, f"GPU:{number}", where, difference(tensor.numpy(), right), most)


def _gather(tf: Any, mine: Any, count: int) -> Any:
    """Gather with the collective operation itself.

    A strategy's ``all_gather`` allows different shapes. For that it adds operations whose number grows with the square
    of the GPUs: 14,721 on 32 GPUs, which took 18 s of processor time (2.21).
    """
    # Not CollectiveGatherV2: tf.function lets one wait for the other, and none ends.
    return tf.raw_ops.CollectiveGather(
        input=mine,
        group_size=count,
        group_key=GATHERING,
        instance_key=GATHERING,
        shape=[count, *mine.shape[1:]],
        communication_hint="nccl",
        timeout_seconds=TIMEOUT_S,
    )


def judge(reading: Reading) -> Findings:
    yield from reading.judged("NCCL")
