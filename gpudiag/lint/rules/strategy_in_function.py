"""a strategy is made inside of a tf.function: it is made again whenever the function is traced

A strategy belongs to the program: it finds the devices and makes their collectives when it is made. Inside of a
tf.function that is while the function is traced, and the variables of another trace belong to another strategy.

Bad
    import tensorflow as tf


    @tf.function
    def step(x):
        strategy = tf.distribute.MirroredStrategy()
        return strategy.run(tf.square, args=(x,))

Good
    import tensorflow as tf

    strategy = tf.distribute.MirroredStrategy()


    @tf.function
    def step(x):
        return strategy.run(tf.square, args=(x,))
"""

from __future__ import annotations

from gpudiag.fix import edit_note
from gpudiag.knowledge import tensorflow_api as api
from gpudiag.lint.program import LintedProgram
from gpudiag.lint.rule import Matches, Rule, Violation
from gpudiag.model.report import Severity

RULE = Rule(
    message="{name} is made inside of a tf.function: it is made again whenever the function is traced",
    severity=Severity.WARNING,
    fix=(edit_note("make it once, at the beginning of the program"),),
    words=tuple(f"{name.rpartition('.')[2]}(" for name in sorted(api.STRATEGIES)),
    url="https://www.tensorflow.org/guide/distributed_training",
)


def find(program: LintedProgram) -> Matches:
    for event in program.calls(*api.STRATEGIES):
        if any(function.graph for function in event.functions):
            yield Violation(event, {"name": event.api.rpartition(".")[2]})
