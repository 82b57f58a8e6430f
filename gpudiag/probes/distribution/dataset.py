"""A distributed dataset gives each GPU its part of every batch, and `strategy.reduce` and `strategy.gather` are right.

What it does
    Makes a `tf.distribute.MirroredStrategy`, and with `strategy.experimental_distribute_dataset` a dataset of two full
    batches and one with a single element. For every batch it records which elements each replica got and on which
    device they are, then the sum and the mean of them by `strategy.reduce` along their first axis, and all of them by
    `strategy.gather`. For one number per replica, such as a loss, it records the sum and the mean with `axis=None`. A
    single GPU is split into two logical devices.
Why it matters
    `model.fit` and your own training loops read their data this way, and report their loss by `reduce`. An element that
    no replica gets, or two get, raises nothing. Nor does a mean that counts a short batch as a full one.
What to do
    `strategy.experimental_distribute_dataset(dataset)` with a batch size for all replicas together, and
    `strategy.reduce(tf.distribute.ReduceOp.MEAN, values, axis=0)`: with `axis=None` it is the mean of the means, which
    is another number if the last batch is short.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

from gpudiag import fix, probe
from gpudiag.knowledge.placement import short_device
from gpudiag.probe import Context, Findings, Raised, fail, warn
from gpudiag.probes.common import COLLECTIVE_S, Numbers, ReplicaReading, in_time, make_replicas, numbers
from gpudiag.record import Record

PROBE = probe.Probe(needs=probe.Needs(gpus=1), scope=probe.Scope.ALL_GPUS, sampled=True)


class Fault(probe.ReplicaFaults):
    raised = fail(
        "reading a distributed dataset on {where} raised {error}",
        means="Reading a distributed dataset raised an error.",
        do=(
            fix.edit("for batch in dataset: strategy.run(step, args=(batch,))", "gives each replica all of the data"),
            fix.ask("gpudiag check distribution.reduction", "shows which way to exchange data works here"),
        ),
    )
    hangs = fail(
        "reading a distributed dataset on {where} had not ended after {seconds:.0f} s",
        means="Reading a distributed dataset did not end.",
        do=fix.export("NCCL_P2P_DISABLE", "1", "avoid the direct connection between the GPUs"),
    )
    other_replicas = fail(
        "a batch was divided between {replicas} replicas, TensorFlow has {devices} devices",
        means="A batch was divided between another number of replicas than TensorFlow has devices.",
        do=fix.edit("tf.distribute.MirroredStrategy(['/GPU:0', '/GPU:1'])", "name the devices"),
    )
    wrong_parts = fail(
        "the replicas got the elements {found} of a batch that has {expected}",
        means="An element of a batch came to no replica, or to two.",
        do=probe.trust_no("training on these GPUs"),
    )
    uneven = warn(
        "of a full batch the replicas got {found} elements, they should get {each} each",
        means="A replica that gets fewer waits for the others.",
        do=fix.edit("dataset.batch(64 * strategy.num_replicas_in_sync)", "the batch size is for all replicas together"),
    )
    part_elsewhere = fail(
        "the elements of replica {replica} are on {found}, they should be on {expected}",
        means="The elements of a replica are on another device than the replica.",
        do=fix.edit("tf.config.set_soft_device_placement(False)", "an error, if a device is not there"),
    )
    wrong_sum = fail(
        "strategy.reduce gives the {op} {found} of the elements {elements}, it should be {expected}",
        means="strategy.reduce gives a wrong sum or mean.",
        do="Trust no loss that is reduced here; distribution.reduction says which cross_device_ops gives right sums.",
    )
    wrong_gather = fail(
        "strategy.gather gives {found}, it should be {expected}",
        means="strategy.gather gives other elements than the replicas have.",
        do=fix.edit("tf.concat(strategy.experimental_local_results(values), axis=0)", "collect results on the CPU"),
    )


EACH = 2
"""The number of elements for each replica in a full batch."""
FULL_BATCHES = 2
NEAR = 1e-4
"""The allowed difference of a mean, which may be rounded; sums are whole numbers."""


class BatchPart(Record):
    """A replica's part of a batch."""

    device: str
    """The device whose memory holds the part."""
    elements: Numbers


class Batch(Record):
    """A batch as it was distributed, and its sum, mean and gathered elements."""

    parts: tuple[BatchPart, ...]
    total: float | None
    """The sum that `strategy.reduce` computed."""
    mean: float | None
    """The mean that `strategy.reduce` computed."""
    gathered: Numbers

    @property
    def elements(self) -> Numbers:
        return tuple(element for part in self.parts for element in part.elements)


class Reading(ReplicaReading):
    """The distributed batches and the reduced losses."""

    batches: tuple[Batch, ...]
    """The batches that were read."""
    error: Raised | None
    losses: Numbers = ()
    """The sum and the mean of one number per replica (1, 2, ...), by `strategy.reduce` with `axis=None`."""

    def figure(self) -> str:
        return f"{len(self.batches)} batches on {self.where}"


def measure(ctx: Context) -> Reading:
    made = make_replicas(ctx)
    batches: list[Batch] = []
    losses: list[float | None] = []
    error = in_time(ctx, COLLECTIVE_S, partial(_read, ctx.tf, len(made), batches, losses))
    return Reading(tuple(batches), error, tuple(losses), made=made)


def _expected(count: int) -> list[tuple[float, ...]]:
    """Return the elements of each batch for ``count`` replicas; the last batch has a single element."""
    size = EACH * count
    firsts = range(1, FULL_BATCHES * size + 1, size)
    return [*(tuple(float(first + more) for more in range(size)) for first in firsts), (FULL_BATCHES * size + 1.0,)]


def _read(tf: Any, count: int, batches: list[Batch], losses: list[float | None]) -> None:
    # Not with NCCL, which distribution.reduction examines.
    strategy = tf.distribute.MirroredStrategy(cross_device_ops=tf.distribute.ReductionToOneDevice())
    ops = tf.distribute.ReduceOp.SUM, tf.distribute.ReduceOp.MEAN

    def reduced(op: Any, values: Any, axis: int | None) -> float | None:
        return numbers(tf.reshape(strategy.reduce(op, values, axis=axis), [1]))[0]

    each = strategy.experimental_distribute_values_from_function(
        lambda where: tf.constant(where.replica_id_in_sync_group + 1.0)
    )
    losses.extend(reduced(op, each, None) for op in ops)
    elements = [element for batch in _expected(count) for element in batch]
    dataset = tf.data.Dataset.from_tensor_slices(tf.constant(elements)).batch(EACH * count)
    for values in strategy.experimental_distribute_dataset(dataset):
        parts = [
            BatchPart(short_device(result.backing_device), numbers(result))
            for result in strategy.experimental_local_results(values)
        ]
        total, mean = (reduced(op, values, 0) for op in ops)
        batches.append(Batch(tuple(parts), total, mean, numbers(strategy.gather(values, axis=0))))


def judge(reading: Reading) -> Findings:
    error, where = reading.error, reading.where
    if error is not None and error.type == "TimeoutError":
        yield Fault.hangs.found(where=where, seconds=COLLECTIVE_S)
    elif error is not None:
        yield Fault.raised.found(where=where, error=error.brief)
    count = len(reading.made)
    divided = next((len(batch.parts) for batch in reading.batches), count)
    if divided != count:
        yield Fault.other_replicas.found(replicas=divided, devices=count)
        return
    ones = tuple(float(number) for number in range(1, count + 1))
    yield from _judge_sums(ones, dict(zip(("sum of losses", "mean of losses"), reading.losses, strict=False)))
    expected = _expected(count)
    if error is None and len(reading.batches) != len(expected):
        yield Fault.wrong_parts.found(found=f"of {len(reading.batches)} batches", expected=f"{len(expected)} batches")
    for batch, elements in zip(reading.batches, expected, strict=False):
        yield from _judge_batch(reading, batch, elements)


def _judge_batch(reading: Reading, batch: Batch, expected: tuple[float, ...]) -> Findings:
    if Counter(batch.elements) != Counter(expected):
        yield Fault.wrong_parts.found(found=str(list(batch.elements)), expected=str(list(expected)))
        return
    sizes = [len(part.elements) for part in batch.parts]
    if len(expected) > 1 and sizes != [EACH] * len(reading.made):
        yield Fault.uneven.found(found=" and ".join(map(str, sizes)), each=EACH)
    for replica, (part, device) in enumerate(zip(batch.parts, reading.made, strict=False)):
        if part.elements and part.device != device:
            yield Fault.part_elsewhere.found(replica=replica, found=part.device, expected=device)
    yield from _judge_sums(expected, {"sum": batch.total, "mean": batch.mean})
    if batch.gathered != batch.elements:
        yield Fault.wrong_gather.found(found=str(list(batch.gathered)), expected=str(list(batch.elements)))


def _judge_sums(elements: tuple[float, ...], reduced: dict[str, float | None]) -> Findings:
    total = sum(elements)
    for op, found in reduced.items():
        right = total if op.startswith("sum") else total / len(elements)
        if found is None or abs(found - right) > NEAR:
            yield Fault.wrong_sum.found(op=op, found=found, elements=str(list(elements)), expected=right)
