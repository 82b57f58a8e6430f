"""strategy.run is given batches of {dataset}, which is not distributed: each replica computes the same whole batch

strategy.run hands its arguments to every replica as they are. Only a dataset that experimental_distribute_dataset or
distribute_datasets_from_function has made gives each replica a part of the batch. Without it all GPUs are busy with the
same work, and sums over the replicas are too large by their number.

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

from gpudiag.fix import edit
from gpudiag.knowledge import tensorflow_api as api
from gpudiag.lint.folding import is_dataset
from gpudiag.lint.program import Program
from gpudiag.lint.rule import Match, Matches, Rule
from gpudiag.lint.values import Items, Part, elements
from gpudiag.model.report import Severity

RULE = Rule(
    severity=Severity.WARNING,
    fix=(
        edit(
            "dataset = strategy.experimental_distribute_dataset(dataset)",
            "loop over the distributed dataset",
        ),
    ),
    words=("Strategy(",),
    also=(".run(",),
    url="https://www.tensorflow.org/tutorials/distribute/input",
)
_RUNS = tuple(f"{name}().run" for name in sorted(api.STRATEGIES) if not name.endswith("OneDeviceStrategy"))


def find(program: Program) -> Matches:
    for event in program.calls(*_RUNS):
        given = elements(event.made.argument(1, "args"))
        given = [inner for value in given for inner in (value.items if isinstance(value, Items) else [value])]
        parts = [value for value in given if isinstance(value, Part) and is_dataset(value.of)]
        if parts:
            yield Match(event, {"dataset": "a dataset"})
