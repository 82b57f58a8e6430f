"""a dataset is not distributed: each replica computes the same whole batch

strategy.run hands its arguments to every replica as they are. Only a dataset that experimental_distribute_dataset or
distribute_datasets_from_function has made gives each replica a part of the batch. Without it all GPUs are busy with the
same work, and sums over the replicas are too large by their number. train_on_batch of Keras 3 gives the whole batch to
each replica, too.

Bad
    import tensorflow as tf

    strategy = tf.distribute.MirroredStrategy()
    dataset = tf.data.Dataset.range(64).batch(16)
    for batch in dataset:
        strategy.run(lambda x: x * 2, args=(batch,))

Good
    import tensorflow as tf

    strategy = tf.distribute.MirroredStrategy()
    dataset = tf.data.Dataset.range(64).batch(16)
    for batch in strategy.experimental_distribute_dataset(dataset):
        strategy.run(lambda x: x * 2, args=(batch,))
"""

from __future__ import annotations

import re

from gpudiag.fix import edit, edit_note
from gpudiag.knowledge import tensorflow_api as api
from gpudiag.lint.folding import is_dataset
from gpudiag.lint.program import LintedProgram, ProgramEvent
from gpudiag.lint.rule import Matches, Rule, Violation
from gpudiag.lint.values import Items, Made, Part, elements
from gpudiag.model.report import Severity

RULE = Rule(
    message="{call} is given {batch}, which is not distributed: each replica computes the same whole batch",
    severity=Severity.WARNING,
    fix=(edit("dataset = strategy.experimental_distribute_dataset(dataset)", "loop over the distributed dataset"),),
    words=("Strategy(", "train_on_batch("),
    also=(".run(", "train_on_batch("),
    url="https://www.tensorflow.org/tutorials/distribute/input",
)
_RUNS = tuple(f"{name}().run" for name in sorted(api.STRATEGIES) if not name.endswith("OneDeviceStrategy"))


def find(program: LintedProgram) -> Matches:
    for event in program.calls(*_RUNS):
        given = elements(event.made.argument(1, "args"))
        given = [inner for value in given for inner in (value.items if isinstance(value, Items) else [value])]
        parts = [value for value in given if isinstance(value, Part) and is_dataset(value.of)]
        if parts:
            yield Violation(event, {"call": "strategy.run", "batch": "batches of a dataset"})
    for event in () if program.mentions(_KERAS_2) else program.runs_of(_is_mirrored, ("().train_on_batch",)):
        yield Violation(event, {"call": event.what, "batch": "a batch"}, fix=(edit_note(_FIT),))


_KERAS_2 = re.compile(r"tf_keras|TF_USE_LEGACY_KERAS")
"""Signs of a Keras that distributes the batch."""
_FIT = "give fit() the batches, or strategy.run the step with the batches of a distributed dataset"


def _is_mirrored(maker: ProgramEvent) -> bool:
    """Return whether a model is made in the scope of a MirroredStrategy, unless that may have one device."""
    owners = [context.owner for context in maker.frame.contexts if isinstance(context.owner, Made)]
    mirrored = (owner for owner in owners if owner.api == "distribute.MirroredStrategy")
    return any(len(elements(owner.argument(0, "devices"))) != 1 for owner in mirrored)
