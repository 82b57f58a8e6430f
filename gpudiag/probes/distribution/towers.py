"""Data parallel by hand, a tower on each GPU and the variable on the CPU, gives the gradient of one device.

What it does
    Builds a copy of a small model for every GPU under a name scope of its own (`tower_0`, `tower_1`, ...), with one
    variable on `CPU:0`, and averages the gradients there: as a graph in a `tf.compat.v1.Session`, and as a
    `tf.function` with `tf.GradientTape`. A single GPU is split into two logical devices. It reads from the placement
    log where each tower ran, and compares the average with the gradient that one device, the CPU, has for all batches
    together.
Why it matters
    Programs from before `tf.distribute` share their work so, and some still must. It needs no collective, only copies
    between the GPUs and the CPU: where it works and `MirroredStrategy` does not, the collective is at fault.
What a failure means
    `program_raised`: one of the two programs failed.
    `tower_elsewhere`: the log shows a tower on another device than its own.
    `variable_elsewhere`: the variable is not on the CPU, or there is more than one.
    `wrong_gradient`: the average is not the gradient of one device.
    `gpu_not_seen`, `other_gpu`: TensorFlow does not use the GPUs that it was given.
What to do
    Make the variable under `with tf.device("/CPU:0"):`. For each GPU compute the gradient of its part of the batch, all
    parts of one size, under `with tf.device(gpu.name), tf.name_scope(f"tower_{i}"):`, and average on the CPU with
    `tf.add_n(gradients) / len(gradients)`. A session refuses a missing GPU with
    `tf.compat.v1.ConfigProto(allow_soft_placement=False)`, which is its default.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from gpudiag import probe
from gpudiag.hostfacts import Facts
from gpudiag.model import Limits, Severity
from gpudiag.placement import devices_of
from gpudiag.probe import Case, Context, Judgement, Kind, Needs, Raised, Scope, Verified
from gpudiag.probes.common import GPU_NOT_SEEN, OTHER_GPU, Numbers, Replicas, judge_replicas, make_replicas, numbers
from gpudiag.record import Record

PROBE = probe.Probe(needs=Needs(gpus=1), scope=Scope.ALL_GPUS)

PROGRAM_RAISED = Kind(
    "program_raised",
    Severity.FAIL,
    "{mode} with towers on {where} raised {error}",
    "Try each GPU alone: export CUDA_VISIBLE_DEVICES=GPU-... (see nvidia-smi -L), and look for NVRM and Xid lines in "
    "`dmesg`.",
)
TOWER_ELSEWHERE = Kind(
    "tower_elsewhere",
    Severity.FAIL,
    "{mode}: {tower} was put on {device}, the placement log says {logged}",
    "Switch soft placement off to get an error instead: tf.config.set_soft_device_placement(False)",
)
VARIABLE_ELSEWHERE = Kind(
    "variable_elsewhere",
    Severity.FAIL,
    "{mode}: the variable of all towers was put on CPU:0, the placement log says {logged}",
    "Make it once, before the towers: with tf.device('/CPU:0'): weights = tf.Variable(...)",
)
WRONG_GRADIENT = Kind(
    "wrong_gradient",
    Severity.FAIL,
    "{mode}: the average gradient of towers on {where} is {average}, that of one device is {single}",
    "Trust no training on these GPUs. Look for their errors in `nvidia-smi -q -d ECC` and `dmesg | grep Xid`.",
)

WEIGHTS = [[1.0], [2.0]]


class Run(Record):
    """One of the two programs."""

    mode: str
    """``session`` or ``tf.function``."""
    towers: dict[str, tuple[str, ...]]
    """Name scope to the devices on which the log shows its matrix products."""
    variable: tuple[str, ...]
    """Devices on which the log shows a variable."""
    average: Numbers
    """Of the towers' gradients; empty where it raised."""
    raised: Raised | None = None


class Reading(probe.Reading):
    """What the towers computed."""

    replicas: Replicas
    runs: tuple[Run, ...] = ()
    single: Numbers = ()
    """The gradient of one device, the CPU, for all batches together."""

    def figure(self) -> str:
        if not self.replicas.made:
            return self.replicas.where
        right = sum(_close(run.average, self.single) for run in self.runs)
        return f"{right} of {len(self.runs)} gradients right on {self.replicas.where}"


def measure(ctx: Context) -> Reading:
    tf = ctx.tf
    tf.debugging.set_log_device_placement(True)  # first of all: later it is accepted and nothing is logged
    replicas = make_replicas(ctx)
    if not replicas.made:
        return Reading(replicas)
    devices = list(replicas.made)
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
    return Reading(replicas, runs, numbers(single))


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


def _run(ctx: Context, mode: str, program: Callable[[], Any], devices: list[str]) -> Run:
    averages: list[Any] = []
    with ctx.placements() as log:
        raised = ctx.attempt(lambda: averages.append(program()))
    towers = {}
    for number in range(len(devices)):
        scope = _scope(number)
        towers[scope] = devices_of("MatMul", (one for one in log.placements if one.name.startswith(f"{scope}/")))
    average = numbers(averages[0]) if averages else ()
    return Run(mode, towers, devices_of("VarHandleOp", log.placements), average, raised)


def _scope(number: int) -> str:
    return f"tower_{number}"


def _batch(number: int) -> tuple[list[list[float]], list[list[float]]]:
    """Return the features and labels of a tower: no two have the same, and all have as many."""
    return [[1.0, float(number)], [float(number + 1), 1.0]], [[1.0], [float(number)]]


def _loss(tf: Any, weights: Any, features: list[list[float]], labels: list[list[float]]) -> Any:
    return tf.reduce_sum(tf.square(tf.matmul(tf.constant(features), weights) - tf.constant(labels))) / len(labels)


def _close(found: Numbers, expected: Numbers) -> bool:
    # Small whole numbers, exact in TF32 too, but for the last division: by the number of towers, or of all rows.
    return len(found) == len(expected) and all(
        one is not None and other is not None and math.isclose(one, other, rel_tol=1e-5)
        for one, other in zip(found, expected, strict=True)
    )


def judge(reading: Reading, facts: Facts, limits: Limits) -> Iterator[Judgement]:
    replicas = reading.replicas
    unusable = tuple(judge_replicas(replicas))
    yield from unusable
    if unusable:
        return
    right = True
    for run in reading.runs:
        found = tuple(_of_run(run, replicas, reading.single))
        yield from found
        right = right and not found
    if right:
        yield from (Verified(pci_bus_id) for pci_bus_id in replicas.made.values())


def _of_run(run: Run, replicas: Replicas, single: Numbers) -> Iterator[Judgement]:
    mode = run.mode
    if run.raised is not None:
        yield PROGRAM_RAISED.found(mode=mode, where=replicas.where, error=run.raised.brief)
        return
    for (tower, logged), device in zip(run.towers.items(), replicas.made, strict=True):
        if logged != (device,):
            yield TOWER_ELSEWHERE.found(mode=mode, tower=tower, device=device, logged=_words(logged))
    if run.variable != ("CPU:0",):
        yield VARIABLE_ELSEWHERE.found(mode=mode, logged=_words(run.variable))
    if not _close(run.average, single):
        average, expected = str(list(run.average)), str(list(single))
        yield WRONG_GRADIENT.found(mode=mode, where=replicas.where, average=average, single=expected)


def _words(devices: tuple[str, ...]) -> str:
    return ", ".join(devices) or "nothing"


_FIRST, _SECOND = "0000:3b:00.0", "0000:af:00.0"
_TWO = Replicas((_FIRST, _SECOND), 2, {"GPU:0": _FIRST, "GPU:1": _SECOND})
_SINGLE = (11.0, 8.0)
_TOWERS: dict[str, tuple[str, ...]] = {"tower_0": ("GPU:0",), "tower_1": ("GPU:1",)}
_RIGHT = Run("tf.function", _TOWERS, ("CPU:0",), _SINGLE)


def _case(
    name: str,
    *expect: str,
    towers: dict[str, tuple[str, ...]] = _TOWERS,
    variable: tuple[str, ...] = ("CPU:0",),
    average: Numbers = _SINGLE,
    raised: Raised | None = None,
) -> Case:
    run = Run("session", towers, variable, average, raised)
    return Case(name, expect, Reading(_TWO, (run, _RIGHT), _SINGLE), verified=() if expect else (_FIRST, _SECOND))


CASES = (
    _case("two GPUs"),
    _case("rounded", average=(11.00001, 8.0)),
    _case("both towers on the first", TOWER_ELSEWHERE.name, towers=dict.fromkeys(_TOWERS, ("GPU:0",))),
    _case("a tower that is not in the log", TOWER_ELSEWHERE.name, towers=_TOWERS | {"tower_1": ()}),
    _case("a variable on a GPU", VARIABLE_ELSEWHERE.name, variable=("GPU:0",)),
    _case("one tower's gradient is lost", WRONG_GRADIENT.name, average=(5.5, 4.0)),
    _case("not a number", WRONG_GRADIENT.name, average=(None, 8.0)),
    _case("a copy failed", PROGRAM_RAISED.name, average=(), raised=Raised("InternalError", "CUDA error: ")),
    Case(
        "one GPU, split",
        (),
        Reading(Replicas((_FIRST,), 1, {"GPU:0": _FIRST, "GPU:1": _FIRST}), (_RIGHT,), _SINGLE),
        verified=(_FIRST,),
    ),
    Case(
        "both devices on one GPU",
        (OTHER_GPU.name,),
        Reading(Replicas((_FIRST, _SECOND), 2, {"GPU:0": _FIRST, "GPU:1": _FIRST})),
    ),
    Case("TensorFlow lists one of two", (GPU_NOT_SEEN.name,), Reading(Replicas((_FIRST, _SECOND), 1, {}))),
)
