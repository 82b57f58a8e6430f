"""`MirroredStrategy` on GPUs that are not there trains on the CPU silently; without soft placement it is refused.

What it does
    Hides all GPUs, makes `tf.distribute.MirroredStrategy(['/GPU:0', '/GPU:1'])` and a variable in its scope, and looks
    on which devices the copies are: once with soft placement, which is TensorFlow's default, and once without. It
    needs no GPU.
Why it matters
    A program that asks for two GPUs and gets none says "2 replicas" and runs, far slower, on one CPU. So does a wrong
    number on a machine with GPUs: with two of them, `['/GPU:0', '/GPU:7']` puts both copies on `GPU:0` (measured on
    simulated GPUs, TensorFlow 2.21).
What to do
    Call `tf.config.set_soft_device_placement(False)` right after the import, or compare
    `len(tf.config.list_logical_devices("GPU"))` with the number of GPUs that the program needs.
"""

from __future__ import annotations

from gpudiag import fix, probe
from gpudiag.knowledge.placement import short_device
from gpudiag.probe import Context, Findings, Raised, note, warn
from gpudiag.record import Record

PROBE = probe.Probe()


class Fault(probe.Faults):
    refused = note(
        "MirroredStrategy({devices}) without a GPU raised {error}; TensorFlow 2.18 to 2.21 put it on CPU:0",
        means="MirroredStrategy without a GPU raised an error; TensorFlow 2.18 to 2.21 put it on CPU:0.",
        do=(
            fix.note("nothing: a missing GPU is an error in this release"),
            fix.edit("tf.distribute.MirroredStrategy(['/CPU:0'])", "for programs that counted on the CPU"),
        ),
    )
    other_replicas = note(
        "MirroredStrategy({devices}) without a GPU made {replicas} replicas; TensorFlow 2.18 to 2.21 made {named}",
        means="MirroredStrategy without a GPU made another number of replicas than TensorFlow 2.18 to 2.21.",
        do="Compute the batch size from strategy.num_replicas_in_sync, never from the GPUs named.",
    )
    elsewhere = note(
        "MirroredStrategy({devices}) without a GPU has its copies on {found}; TensorFlow 2.18 to 2.21: on CPU:0",
        means="MirroredStrategy without a GPU has its copies elsewhere than on CPU:0.",
        do="Look at [copy.device for copy in strategy.experimental_local_results(variable)]",
    )
    accepted = warn(
        "with soft placement off, MirroredStrategy({devices}) without a GPU was accepted, its copies are on {found}",
        means="They are accepted even without soft placement: no error reports a missing GPU.",
        do=fix.edit("len(tf.config.list_logical_devices('GPU'))", "compare the GPUs with those that the program needs"),
    )
    other_error = warn(
        "with soft placement off, MirroredStrategy({devices}) without a GPU raised {error}, not InvalidArgumentError",
        means="With soft placement off, MirroredStrategy without a GPU raised another error than InvalidArgumentError.",
        do="Programs that catch tf.errors.InvalidArgumentError miss this error: look up its text.",
    )


NAMED = ("/GPU:0", "/GPU:1")


class StrategyReaction(Record):
    """The strategy's reaction to the devices :data:`NAMED`."""

    replicas: int = 0
    """The number of replicas, by ``num_replicas_in_sync``; 0 if the strategy raised."""
    copies: tuple[str, ...] = ()
    """The devices of a variable's copies."""
    raised: Raised | None = None


class Reading(probe.Reading):
    """The strategy's behaviour with soft placement and without."""

    soft: StrategyReaction
    hard: StrategyReaction

    def figure(self) -> str:
        where = ", ".join(sorted(set(self.soft.copies)))
        soft = "refused" if self.soft.raised else f"{self.soft.replicas} replicas on {where}"
        return f"{soft}; hard: {'refused' if self.hard.raised else 'accepted'}"


def measure(ctx: Context) -> Reading:
    ctx.tf.config.set_soft_device_placement(True)
    soft = _run(ctx)
    ctx.tf.config.set_soft_device_placement(False)
    return Reading(soft, _run(ctx))


def _run(ctx: Context) -> StrategyReaction:
    tf = ctx.tf
    made: list[StrategyReaction] = []

    def program() -> None:
        strategy = tf.distribute.MirroredStrategy(list(NAMED))
        with strategy.scope():
            variable = tf.Variable(1.0)
        copies = (short_device(copy.device) for copy in strategy.experimental_local_results(variable))
        made.append(StrategyReaction(strategy.num_replicas_in_sync, tuple(copies)))

    raised = ctx.attempt(program)
    return made[0] if made else StrategyReaction(raised=raised)


def judge(reading: Reading) -> Findings:
    soft, hard, devices = reading.soft, reading.hard, str(list(NAMED))
    if soft.raised is not None:
        yield Fault.refused.found(devices=devices, error=soft.raised.brief)
    else:
        if soft.replicas != len(NAMED):
            yield Fault.other_replicas.found(devices=devices, replicas=soft.replicas, named=len(NAMED))
        if set(soft.copies) != {"CPU:0"}:
            yield Fault.elsewhere.found(devices=devices, found=", ".join(soft.copies))
    if hard.raised is None:
        yield Fault.accepted.found(devices=devices, found=", ".join(hard.copies))
    elif hard.raised.type != "InvalidArgumentError":
        yield Fault.other_error.found(devices=devices, error=hard.raised.brief)
