"""Data parallelism by hand, with a tower on each GPU and the variable on the CPU, gives the gradient of one device.

What it does
    Builds a copy of a small model for every GPU under its own name scope (`tower_0`, `tower_1`, ...), with one
    variable on `CPU:0`, and averages the gradients there: as a graph in a `tf.compat.v1.Session`, and as a
    `tf.function` with `tf.GradientTape`. A single GPU is split into two logical devices. It reads from the placement
    log where each tower ran, and compares the average with the gradient that one device, the CPU, has for all batches
    together.
Why it matters
    Programs from before `tf.distribute` share their work this way, and some still must. It needs no collective, only
    copies between the GPUs and the CPU: if it works and `MirroredStrategy` does not, the collective is at fault.
What to do
    Make the variable under `with tf.device("/CPU:0"):`. For each GPU compute the gradient of its part of the batch, all
    parts of one size, under `with tf.device(gpu.name), tf.name_scope(f"tower_{i}"):`, and average on the CPU with
    `tf.add_n(gradients) / len(gradients)`. A session refuses a missing GPU with
    `tf.compat.v1.ConfigProto(allow_soft_placement=False)`, which is its default.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from gpudiag import fix, probe
from gpudiag.knowledge.placement import devices_of
from gpudiag.probe import Context, Findings, Raised, Verified, fail
from gpudiag.probes.common import Numbers, ReplicaReading, make_replicas, numbers
from gpudiag.record import Record

PROBE = probe.Probe(needs=probe.Needs(gpus=1), scope=probe.Scope.ALL_GPUS, sampled=True)


class Fault(probe.ReplicaFaults):
    program_raised = fail(
        "{mode} with towers on {where} raised {error}",
        means="The program with towers on the GPUs raised an error.",
        do=(
            fix.export("CUDA_VISIBLE_DEVICES", "GPU-...", "try each GPU alone; nvidia-smi -L lists them"),
            probe.KERNEL_LOG,
        ),
    )
    tower_elsewhere = fail(
        "{mode}: {tower} was put on {device}, the placement log says {logged}",
        means="The placement log names another device for a tower than tf.device.",
        do=fix.edit("tf.config.set_soft_device_placement(False)", "switch soft placement off to get an error instead"),
    )
    variable_elsewhere = fail(
        "{mode}: the variable of all towers was put on CPU:0, the placement log says {logged}",
        means="The variable of all towers was put on CPU:0 and is elsewhere by the placement log.",
        do=fix.edit("with tf.device('/CPU:0'): weights = tf.Variable(...)", "make it once, before the towers"),
    )
    wrong_gradient = fail(
        "{mode}: the average gradient of towers on {where} is {average}, that of one device is {single}",
        means="The average gradient of the towers differs from that of one device.",
        do=probe.trust_no("training on these GPUs"),
    )


WEIGHTS = [[1.0], [2.0]]


class TowersProgram(Record):
    """The placement and the result of one program: of a session, or of a ``tf.function``."""

    mode: str
    """``session`` or ``tf.function``."""
    towers: dict[str, tuple[str, ...]]
    """The devices on which the log shows the matrix products of each tower, by name scope."""
    variable: tuple[str, ...]
    """Devices on which the log shows a variable."""
    average: Numbers
    """The average of the towers' gradients; empty if it raised."""
    raised: Raised | None = None


class Reading(ReplicaReading):
    """The gradients that the towers computed."""

    runs: tuple[TowersProgram, ...]
    single: Numbers
    """The gradient of one device, the CPU, for all batches together."""

    def figure(self) -> str:
        right = sum(_close(run.average, self.single) for run in self.runs)
        return f"{right} of {len(self.runs)} gradients right on {self.where}"


def measure(ctx: Context) -> Reading:
    tf = ctx.tf
    tf.debugging.set_log_device_placement(True)  # first of all: later it is accepted and nothing is logged
    made = make_replicas(ctx)
    devices = list(made)
    programs: dict[str, Callable[[], Any]] = {
        "session": partial(_in_session, tf, devices),
        "tf.function": partial(_in_function, tf, devices),
    }
    runs = tuple(_run(ctx, mode, program, devices) for mode, program in programs.items())
    with tf.device("/CPU:0"):
        weights = tf.constant(WEIGHTS)
        batches = [_batch(number) for number in range(len(devices))]
        features, labels = ([row for batch in batches for row in batch[part]] for part in (0, 1))
        with tf.GradientTape() as tape:
            tape.watch(weights)
            loss = _loss(tf, weights, features, labels)
        single = tape.gradient(loss, weights)
    return Reading(runs, numbers(single), made=made)


def _in_session(tf: Any, devices: list[str]) -> Any:
    v1 = tf.compat.v1
    # Without a config the session takes that of eager mode: the logical devices and the placement log.
    with tf.Graph().as_default(), v1.Session() as session:
        with tf.device("/CPU:0"):
            weights = v1.get_variable("weights", initializer=WEIGHTS)
        gradients = []
        for number, device in enumerate(devices):
            with tf.device(device), tf.name_scope(_scope(number)):
                (gradient,) = tf.gradients(_loss(tf, weights, *_batch(number)), [weights])
                gradients.append(gradient)
        with tf.device("/CPU:0"):
            average = tf.add_n(gradients) / len(gradients)
        session.run(v1.global_variables_initializer())
        return session.run(average)


def _in_function(tf: Any, devices: list[str]) -> Any:
    with tf.device("/CPU:0"):
        weights = tf.Variable(WEIGHTS)

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def step() -> Any:
        gradients = []
        for number, device in enumerate(devices):
            with tf.device(device), tf.name_scope(_scope(number)), tf.GradientTape() as tape:
                loss = _loss(tf, weights, *_batch(number))
            with tf.device(device):
                gradients.append(tape.gradient(loss, weights))
        with tf.device("/CPU:0"):
            return tf.add_n(gradients) / len(gradients)

    return step().numpy()


def _run(ctx: Context, mode: str, program: Callable[[], Any], devices: list[str]) -> TowersProgram:
    averages: list[Any] = []
    with ctx.placements() as log:
        raised = ctx.attempt(lambda: averages.append(program()))
    towers = {}
    for number in range(len(devices)):
        scope = _scope(number)
        towers[scope] = devices_of(
            "MatMul", (placement for placement in log.placements if placement.name.startswith(f"{scope}/"))
        )
    average = numbers(averages[0]) if averages else ()
    return TowersProgram(mode, towers, devices_of("VarHandleOp", log.placements), average, raised)


def _scope(number: int) -> str:
    return f"tower_{number}"


def _batch(number: int) -> tuple[list[list[float]], list[list[float]]]:
    """Return the features and labels of a tower, different for each tower but always as many."""
    return [[1.0, float(number)], [float(number + 1), 1.0]], [[1.0], [float(number)]]


def _loss(tf: Any, weights: Any, features: list[list[float]], labels: list[list[float]]) -> Any:
    return tf.reduce_sum(tf.square(tf.matmul(tf.constant(features), weights) - tf.constant(labels))) / len(labels)


def _close(found: Numbers, expected: Numbers) -> bool:
    # Small whole numbers, exact in TF32 too, but for the last division: by the number of towers, or of all rows.
    return len(found) == len(expected) and all(
        computed is not None and other is not None and math.isclose(computed, other, rel_tol=1e-5)
        for computed, other in zip(found, expected, strict=True)
    )


def judge(reading: Reading) -> Findings:
    right = True
    for run in reading.runs:
        found = tuple(_of_run(run, reading))
        yield from found
        right = right and not found
    if right:
        yield from (Verified(pci_bus_id) for pci_bus_id in reading.made.values())


def _of_run(run: TowersProgram, reading: Reading) -> Findings:
    mode, where = run.mode, reading.where
    if run.raised is not None:
        yield Fault.program_raised.found(mode=mode, where=where, error=run.raised.brief)
        return
    for (tower, logged), device in zip(run.towers.items(), reading.made, strict=True):
        if logged != (device,):
            yield Fault.tower_elsewhere.found(mode=mode, tower=tower, device=device, logged=_words(logged))
    if run.variable != ("CPU:0",):
        yield Fault.variable_elsewhere.found(mode=mode, logged=_words(run.variable))
    if not _close(run.average, reading.single):
        average, expected = str(list(run.average)), str(list(reading.single))
        yield Fault.wrong_gradient.found(mode=mode, where=where, average=average, single=expected)


def _words(devices: tuple[str, ...]) -> str:
    return ", ".join(devices) or "nothing"
