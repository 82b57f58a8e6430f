"""{call} is called and not entered: it has no effect

tf.device and the scope() of a strategy return a context, which holds inside of a with statement.

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

from gpudiag.knowledge import tensorflow_api as api
from gpudiag.lint.program import Program
from gpudiag.lint.rule import Match, Matches, Rule
from gpudiag.lint.values import Made
from gpudiag.model.report import Severity

RULE = Rule(
    severity=Severity.WARNING,
    advice="with {call}: and the operations below it, indented",
    words=("tf.device(", "tf1.device(", "tensorflow.device(", "v1.device(", ".scope("),
    url="https://www.tensorflow.org/guide/gpu#manual_device_placement",
)


def find(program: Program) -> Matches:
    for made, event in program.made:
        if made.used or made.entered:
            continue
        if (made.api == "device" and made.node.args) or _is_scope(made):
            yield Match(event, {"call": ast.unparse(made.node)})


def _is_scope(made: Made) -> bool:
    """Return whether a call is that of ``scope()`` of a strategy."""
    return made.api.endswith("().scope") and made.api.removesuffix("().scope") in api.STRATEGIES
