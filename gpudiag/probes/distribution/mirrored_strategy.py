"""`MirroredStrategy` keeps a copy of a variable on every GPU, and trains as one device does on the joined batch.

What it does
    Makes a `tf.distribute.MirroredStrategy` on all GPUs (a single GPU is split into two logical devices) and a variable
    in its scope, runs one training step in a `tf.function`, without Keras, and compares every copy with the weights
    that one device, the CPU, has after the joined batch. The GPU behind a copy is told by its PCI bus id.
Why it matters
    This is how Keras and most programs use several GPUs. A broken connection between GPUs shows here first, and often
    as a program that hangs: the probe gives up after 20 s.
What a failure means
    `other_replicas`: the strategy made another number of replicas, or of copies, than there are devices.
    `not_mirrored`: copies of the variable share a device.
    `step_hangs`: the step did not end; the GPUs wait for each other.
    `step_raised`: making the strategy or the variable, or the step, failed.
    `wrong_step`: a copy has other weights than one device after the same batch: what is trained is wrong.
    `other_collective`: TensorFlow chose another collective than NCCL for separate GPUs, or RING for parts of one.
    `gpu_not_seen`, `other_gpu`: TensorFlow does not use the GPUs that it was given.
What to do
    `strategy = tf.distribute.MirroredStrategy()`, and make variables inside `with strategy.scope():`. Where the step
    hangs or NCCL fails: `export NCCL_DEBUG=INFO` shows why, `export NCCL_P2P_DISABLE=1` goes round a broken connection,
    `tf.distribute.MirroredStrategy(cross_device_ops=tf.distribute.ReductionToOneDevice())` does without NCCL.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from gpudiag import probe
from gpudiag.hostfacts import Facts
from gpudiag.model import Limits, Severity
from gpudiag.placement import short_device
from gpudiag.probe import Case, Context, Judgement, Kind, Needs, Raised, Scope, Verified
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

OTHER_REPLICAS = Kind(
    "other_replicas",
    Severity.FAIL,
    "MirroredStrategy has {replicas} replicas and {copies} copies of a variable on {devices} devices",
    "Name the devices: tf.distribute.MirroredStrategy(['/GPU:0', '/GPU:1'])",
)
NOT_MIRRORED = Kind(
    "not_mirrored",
    Severity.FAIL,
    "the copies of a variable are on {found}, there should be one on each of {devices}",
    "Make the variable inside `with strategy.scope():`, and call tf.config.set_soft_device_placement(False) to get an "
    "error where a device is not there.",
)
STEP_HANGS = Kind(
    "step_hangs",
    Severity.FAIL,
    "a training step on {where} had not ended after {seconds:.0f} s",
    "Go round the connection between the GPUs: export NCCL_P2P_DISABLE=1; export NCCL_DEBUG=INFO shows where it stops. "
    "On bare metal an IOMMU or PCIe access control (ACS) that is switched on is the usual cause.",
)
STEP_RAISED = Kind(
    "step_raised",
    Severity.FAIL,
    "a training step on {where} raised {error}",
    "export NCCL_DEBUG=INFO shows why NCCL fails. Without NCCL: "
    "tf.distribute.MirroredStrategy(cross_device_ops=tf.distribute.ReductionToOneDevice())",
)
WRONG_STEP = Kind(
    "wrong_step",
    Severity.FAIL,
    "after one step {device} ({pci_bus_id}) has the weights {weights}, one device has {single}",
    "Trust no training on these GPUs. Go round the connection between them (export NCCL_P2P_DISABLE=1) and compare.",
)
OTHER_COLLECTIVE = Kind(
    "other_collective",
    Severity.WARNING,
    "TensorFlow chose {chosen} for {where}, it should be {expected}",
    "Name the collective: tf.distribute.MirroredStrategy(cross_device_ops=tf.distribute.NcclAllReduce())",
)

STEP_S = 20.0
RATE = 0.125  # and small whole numbers for the rest: exact in every floating-point format of a GPU, TF32 included
WEIGHTS = [[1.0], [2.0]]
_CHOSEN = re.compile(r"Collective all_reduce tensors: .{0,300}implementation = (?:CommunicationImplementation\.)?(\w+)")


class Copy(Record):
    """A copy of the variable after the step."""

    device: str
    weights: Numbers


class Trained(Record):
    """What the strategy made and trained."""

    replicas: int
    """By ``num_replicas_in_sync``."""
    copies: tuple[Copy, ...]
    single: Numbers
    """The weights of one device, the CPU, after the joined batch."""


class Reading(probe.Reading):
    """One training step on all devices."""

    replicas: Replicas
    trained: Trained | None = None
    """None where it raised, or where TensorFlow lists too few GPUs."""
    collective: str = ""
    """What TensorFlow's log says that it chose, such as ``NCCL``; empty where it says nothing."""
    raised: Raised | None = None

    def figure(self) -> str:
        if self.trained is None:
            return self.replicas.where
        right = sum(copy.weights == self.trained.single for copy in self.trained.copies)
        return f"{right} copies right on {self.replicas.where}"


def measure(ctx: Context) -> Reading:
    tf = ctx.tf
    tf.get_logger().setLevel("INFO")  # of the Python half, which says there what it chose
    replicas = make_replicas(ctx)
    if not replicas.made:
        return Reading(replicas)
    trained: list[Trained] = []

    def program() -> None:
        strategy = tf.distribute.MirroredStrategy()
        with strategy.scope():
            weights = tf.Variable(WEIGHTS, aggregation=tf.VariableAggregation.SUM)

        def replica(features: Any, labels: Any) -> None:
            weights.assign_sub(RATE * _gradient(tf, weights, features, labels))

        @tf.function  # type: ignore[untyped-decorator]
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
            Copy(short_device(copy.device), numbers(copy)) for copy in strategy.experimental_local_results(weights)
        ]
        with tf.device("/CPU:0"):
            single = tf.Variable(WEIGHTS)
            joined = (tf.constant([row for batch in batches for row in batch[part]]) for part in (0, 1))
            single.assign_sub(RATE * _gradient(tf, single, *joined))
        trained.append(Trained(count, tuple(copies), numbers(single)))

    with ctx.placements() as log:
        raised = in_time(ctx, STEP_S, program)
    chosen = [found[1] for found in map(_CHOSEN.search, log.lines) if found]
    return Reading(replicas, trained[0] if trained else None, chosen[0] if chosen else "", raised)


def _batch(replica: int) -> tuple[list[list[float]], list[list[float]]]:
    """Return the features and labels of a replica: no two have the same."""
    return [[1.0, float(replica)], [float(replica + 1), 1.0]], [[1.0], [float(replica)]]


def _gradient(tf: Any, weights: Any, features: Any, labels: Any) -> Any:
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.square(tf.matmul(features, weights) - labels))
    return tape.gradient(loss, weights)


def judge(reading: Reading, facts: Facts, limits: Limits) -> Iterator[Judgement]:
    replicas, trained = reading.replicas, reading.trained
    unusable = tuple(judge_replicas(replicas))
    yield from unusable
    if unusable:
        return
    if reading.raised is not None and reading.raised.type == "TimeoutError":
        yield STEP_HANGS.found(where=replicas.where, seconds=STEP_S)
    elif reading.raised is not None:
        yield STEP_RAISED.found(where=replicas.where, error=reading.raised.brief)
    expected = "NCCL" if len(replicas.given) > 1 else "RING"
    if reading.collective and reading.collective != expected:
        yield OTHER_COLLECTIVE.found(chosen=reading.collective, where=replicas.where, expected=expected)
    if trained is None:
        return
    devices = tuple(replicas.made)
    found = tuple(copy.device for copy in trained.copies)
    if trained.replicas != len(devices) or len(found) != len(devices):
        yield OTHER_REPLICAS.found(replicas=trained.replicas, copies=len(found), devices=len(devices))
        return
    if sorted(found) != sorted(devices):
        yield NOT_MIRRORED.found(found=", ".join(found), devices=", ".join(devices))
        return
    for copy in trained.copies:
        pci_bus_id = replicas.made[copy.device]
        if copy.weights == trained.single:
            yield Verified(pci_bus_id)
        else:
            weights, single = str(list(copy.weights)), str(list(trained.single))
            yield WRONG_STEP.found(device=copy.device, pci_bus_id=pci_bus_id, weights=weights, single=single)


_FIRST, _SECOND = "0000:3b:00.0", "0000:af:00.0"
_TWO = Replicas((_FIRST, _SECOND), 2, {"GPU:0": _FIRST, "GPU:1": _SECOND})
_AFTER = (-1.75, 0.0)
_COPIES = (Copy("GPU:0", _AFTER), Copy("GPU:1", _AFTER))


def _case(
    name: str,
    *expect: str,
    replicas: int = 2,
    copies: tuple[Copy, ...] = _COPIES,
    collective: str = "NCCL",
    verified: tuple[str, ...] = (_FIRST, _SECOND),
) -> Case:
    return Case(name, expect, Reading(_TWO, Trained(replicas, copies, _AFTER), collective), verified=verified)


CASES = (
    _case("two GPUs"),
    Case(
        "one GPU, split",
        (),
        Reading(
            Replicas((_FIRST,), 1, {"GPU:0": _FIRST, "GPU:1": _FIRST}),
            Trained(2, (_COPIES[0], _COPIES[1]), _AFTER),
            "RING",
        ),
        verified=(_FIRST,),
    ),
    _case("one replica", OTHER_REPLICAS.name, replicas=1, copies=_COPIES[:1], verified=()),
    _case("both copies on the first", NOT_MIRRORED.name, copies=(_COPIES[0], _COPIES[0]), verified=()),
    _case(
        "one GPU kept to its own batch",
        WRONG_STEP.name,
        copies=(_COPIES[0], Copy("GPU:1", (0.0, 1.0))),
        verified=(_FIRST,),
    ),
    _case("no NCCL", OTHER_COLLECTIVE.name, collective="RING"),
    _case("TensorFlow says nothing of what it chose", collective=""),
    Case("NCCL failed", (STEP_RAISED.name,), Reading(_TWO, None, "NCCL", Raised("InternalError", "Collective ops is"))),
    Case("NCCL hangs", (STEP_HANGS.name,), Reading(_TWO, None, "NCCL", Raised("TimeoutError", "it had not ended"))),
    Case(
        "both devices on one GPU",
        (OTHER_GPU.name,),
        Reading(Replicas((_FIRST, _SECOND), 2, {"GPU:0": _FIRST, "GPU:1": _FIRST})),
    ),
    Case("TensorFlow lists one of two", (GPU_NOT_SEEN.name,), Reading(Replicas((_FIRST, _SECOND), 1, {}))),
)
