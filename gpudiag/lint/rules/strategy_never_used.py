"""this {name} is never used: the model is trained on one GPU

A strategy holds for what is made inside of its scope. A Keras model that is made outside is trained without it, on the
first GPU alone, and nothing is said.

Bad
    import tensorflow as tf

    strategy = tf.distribute.MirroredStrategy()
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile(loss="mse")

Good
    import tensorflow as tf

    strategy = tf.distribute.MirroredStrategy()
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
        model.compile(loss="mse")
"""

from __future__ import annotations

import re

from gpudiag.knowledge import tensorflow_api as api
from gpudiag.lint.program import Program
from gpudiag.lint.rule import Match, Matches, Rule
from gpudiag.model.report import Severity

RULE = Rule(
    severity=Severity.WARNING,
    advice="make the model and compile it inside of with strategy.scope():",
    words=tuple(f"{name.rpartition('.')[2]}(" for name in sorted(api.STRATEGIES)),
    url="https://www.tensorflow.org/guide/distributed_training",
)


_TRAINS = re.compile(r"\.(?:fit|compile|apply_gradients)\(")
_USED_OTHERWISE = re.compile(r"\bscope\(|distribute_strategy|distribution_strategy|\.run\(|experimental_distribute")


def find(program: Program) -> Matches:
    text = program.module.text
    if not _TRAINS.search(text) or _USED_OTHERWISE.search(text):
        return
    for made, event in program.made:
        if made.api in api.STRATEGIES and not made.used and not (program.shared and not event.functions):
            yield Match(event, {"name": made.api.rpartition(".")[2]})
