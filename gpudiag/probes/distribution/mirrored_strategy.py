"""`MirroredStrategy` keeps a copy of a variable on every GPU, and trains as one device does on the joined batch.

What it does
    Makes a `tf.distribute.MirroredStrategy` on all GPUs (a single GPU is split into two logical devices) and a variable
    in its scope, runs one training step in a `tf.function`, without Keras, and compares every copy with the weights
    that one device, the CPU, has after the joined batch. The GPU behind a copy is known by its PCI bus id.
Why it matters
    This is how Keras and most programs use several GPUs. A broken connection between GPUs shows here first, and often
    as a program that hangs: the probe gives up after 30 s.
What to do
    `strategy = tf.distribute.MirroredStrategy()`, and make variables inside `with strategy.scope():`. If the step
    hangs or NCCL fails: `export NCCL_DEBUG=INFO` shows why, `export NCCL_P2P_DISABLE=1` avoids a broken connection,
    `tf.distribute.MirroredStrategy(cross_device_ops=tf.distribute.ReductionToOneDevice())` does without NCCL.
"""

from __future__ import annotations

import re
from typing import Any

from gpudiag import fix, probe
from gpudiag.knowledge.placement import short_device
from gpudiag.probe import Context, Findings, Raised, Verified, fail, warn
from gpudiag.probes.common import COLLECTIVE_S, Numbers, ReplicaReading, in_time, make_replicas, numbers
from gpudiag.record import Record

PROBE = probe.Probe(needs=probe.Needs(gpus=1), scope=probe.Scope.ALL_GPUS, sampled=True)


class Fault(probe.ReplicaFaults):
    other_replicas = fail(
        "MirroredStrategy has {replicas} replicas and {copies} copies of a variable on {devices} devices",
        means="MirroredStrategy has another number of replicas, or of copies of a variable, than devices.",
        do=fix.edit("tf.distribute.MirroredStrategy(['/GPU:0', '/GPU:1'])", "name the devices"),
    )
    not_mirrored = fail(
        "the copies of a variable are on {found}, there should be one on each of {devices}",
        means="The copies of a variable are not one on each device.",
        do=(
            fix.edit("with strategy.scope():", "make the variable inside it"),
            fix.edit("tf.config.set_soft_device_placement(False)", "an error, if a device is not there"),
        ),
    )
    step_hangs = fail(
        "a training step on {where} had not ended after {seconds:.0f} s",
        means="The step did not end; the GPUs wait for each other.",
        do=(
            fix.export("NCCL_P2P_DISABLE", "1", "avoid the direct connection between the GPUs"),
            fix.export("NCCL_DEBUG", "INFO", "shows where it stops"),
            fix.note("on bare metal an IOMMU or PCIe access control (ACS) that is switched on is the usual cause"),
        ),
    )
    step_raised = fail(
        "a training step on {where} raised {error}",
        means="A training step on the GPUs raised an error.",
        do=fix.edit(
            "tf.distribute.MirroredStrategy(cross_device_ops=tf.distribute.ReductionToOneDevice())",
            "export NCCL_DEBUG=INFO shows why NCCL fails. Without NCCL",
        ),
    )
    wrong_step = fail(
        "after one step {device} ({pci_bus_id}) has the weights {weights}, expected {single} as on one device",
        means="A copy has other weights than one device after the same batch: the trained weights are wrong.",
        do=fix.export(
            "NCCL_P2P_DISABLE", "1", "trust no training on these GPUs. Avoid their direct connection and compare"
        ),
    )
    other_collective = warn(
        "TensorFlow chose {chosen} for {where}, it should be {expected}",
        means="TensorFlow chose another collective than NCCL for separate GPUs, or RING for parts of one.",
        do=fix.edit(
            "tf.distribute.MirroredStrategy(cross_device_ops=tf.distribute.NcclAllReduce())", "name the collective"
        ),
    )


RATE = 0.125  # and small whole numbers for the rest: exact in every floating-point format of a GPU, TF32 included
WEIGHTS = [[1.0], [2.0]]
_CHOSEN = re.compile(r"Collective all_reduce tensors: .{0,300}implementation = (?:CommunicationImplementation\.)?(\w+)")


class VariableCopy(Record):
    """A copy of the variable after the step."""

    device: str
    weights: Numbers


class Trained(Record):
    """The strategy's replicas and the weights after one training step."""

    replicas: int
    """The number of replicas, by ``num_replicas_in_sync``."""
    copies: tuple[VariableCopy, ...]
    single: Numbers
    """The weights of one device, the CPU, after the joined batch."""


class Reading(ReplicaReading):
    """One training step on all devices."""

    trained: Trained | None
    """The result of the step; None if it raised."""
    collective: str
    """The collective that TensorFlow's log names, such as ``NCCL``; empty if it names none."""
    raised: Raised | None

    def figure(self) -> str:
        if self.trained is None:
            return self.where
        right = sum(copy.weights == self.trained.single for copy in self.trained.copies)
        return f"{right} copies right on {self.where}"


def measure(ctx: Context) -> Reading:
    tf = ctx.tf
    tf.get_logger().setLevel("INFO")  # of the Python half, which says there what it chose
    made = make_replicas(ctx)
    trained: list[Trained] = []

    def program() -> None:
        strategy = tf.distribute.MirroredStrategy()
        with strategy.scope():
            weights = tf.Variable(WEIGHTS, aggregation=tf.VariableAggregation.SUM)

        def replica(features: Any, labels: Any) -> None:
            weights.assign_sub(RATE * _gradient(tf, weights, features, labels))

        @tf.function(autograph=False)  # type: ignore[untyped-decorator]
        def step(features: Any, labels: Any) -> None:
            strategy.run(replica, args=(features, labels))

        count = strategy.num_replicas_in_sync
        batches = [_batch(number) for number in range(count)]
        features, labels = (
            strategy.experimental_distribute_values_from_function(
                lambda where, part=part: tf.constant(batches[where.replica_id_in_sync_group][part])
            )
            for part in (0, 1)
        )
        step(features, labels)
        copies = [
            VariableCopy(short_device(copy.device), numbers(copy))
            for copy in strategy.experimental_local_results(weights)
        ]
        with tf.device("/CPU:0"):
            single = tf.Variable(WEIGHTS)
            joined = (tf.constant([row for batch in batches for row in batch[part]]) for part in (0, 1))
            single.assign_sub(RATE * _gradient(tf, single, *joined))
        trained.append(Trained(count, tuple(copies), numbers(single)))

    with ctx.placements() as log:
        raised = in_time(ctx, COLLECTIVE_S, program)
    chosen = [found[1] for found in map(_CHOSEN.search, log.lines) if found]
    return Reading(trained[0] if trained else None, chosen[0] if chosen else "", raised, made=made)


def _batch(replica: int) -> tuple[list[list[float]], list[list[float]]]:
    """Return the features and labels of a replica, different for each replica."""
    return [[1.0, float(replica)], [float(replica + 1), 1.0]], [[1.0], [float(replica)]]


def _gradient(tf: Any, weights: Any, features: Any, labels: Any) -> Any:
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.square(tf.matmul(features, weights) - labels))
    return tape.gradient(loss, weights)


def judge(reading: Reading) -> Findings:
    trained, where = reading.trained, reading.where
    if reading.raised is not None and reading.raised.type == "TimeoutError":
        yield Fault.step_hangs.found(where=where, seconds=COLLECTIVE_S)
    elif reading.raised is not None:
        yield Fault.step_raised.found(where=where, error=reading.raised.brief)
    expected = "NCCL" if len(reading.given) > 1 else "RING"
    if reading.collective and reading.collective != expected:
        yield Fault.other_collective.found(chosen=reading.collective, where=where, expected=expected)
    if trained is None:
        return
    devices = tuple(reading.made)
    found = tuple(copy.device for copy in trained.copies)
    if trained.replicas != len(devices) or len(found) != len(devices):
        yield Fault.other_replicas.found(replicas=trained.replicas, copies=len(found), devices=len(devices))
        return
    if sorted(found) != sorted(devices):
        yield Fault.not_mirrored.found(found=", ".join(found), devices=", ".join(devices))
        return
    for copy in trained.copies:
        pci_bus_id = reading.made[copy.device]
        if copy.weights == trained.single:
            yield Verified(pci_bus_id)
        else:
            weights, single = str(list(copy.weights)), str(list(trained.single))
            yield Fault.wrong_step.found(device=copy.device, pci_bus_id=pci_bus_id, weights=weights, single=single)
