"""tf.device({name}) is called and not entered: it has no effect

tf.device returns a scope, which holds inside of a with statement.

Bad
    import tensorflow as tf

    tf.device("/GPU:0")
    x = tf.zeros([2, 2])

Good
    import tensorflow as tf

    with tf.device("/GPU:0"):
        x = tf.zeros([2, 2])
"""

from __future__ import annotations

import ast

from gpudiag.lint.program import Program
from gpudiag.lint.rule import Match, Matches, Rule
from gpudiag.model.report import Severity

RULE = Rule(
    severity=Severity.WARNING,
    advice="with {call}: and the operations below it, indented",
    words=("tf.device(", "tf1.device(", "tensorflow.device(", "v1.device("),
    url="https://www.tensorflow.org/guide/gpu#manual_device_placement",
)


def find(program: Program) -> Matches:
    for made, event in program.made:
        if made.api == "device" and not made.used and not made.entered and made.node.args:
            yield Match(event, {"name": ast.unparse(made.node.args[0]), "call": ast.unparse(made.node)})
