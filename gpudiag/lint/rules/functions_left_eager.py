"""functions are left eager: each operation of a function or of a Keras step is run by Python, one after the other

Eager functions are meant for debugging. The graph of a tf.function is not built, so nothing is fused or run at the same
time, and the GPU waits for Python between operations. A small Keras model took 6 times as much processor time for a
step (2.21, on the CPU: 2.7 s in place of 0.43 s for 100 steps). Functions of tf.data are not concerned.

Bad
    import tensorflow as tf

    tf.config.run_functions_eagerly(True)
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile("adam", "mse")
    model.fit(x, y)

Good
    import tensorflow as tf

    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile("adam", "mse")
    model.fit(x, y)
"""

from __future__ import annotations

import ast
import re

from gpudiag.fix import Role, edit, edit_note
from gpudiag.lint.program import Call, LintedProgram
from gpudiag.lint.rule import Matches, Rule, Violation
from gpudiag.lint.settings import is_of_tests
from gpudiag.model.report import Severity

RULE = Rule(
    message="{call} is left on: each operation of a function or of a Keras step is run by Python, one after the other",
    severity=Severity.NOTE,
    fix=(edit_note("remove it"), edit("if debug: {call}", "ask for it", role=Role.ALTERNATIVE)),
    words=("run_functions_eagerly(", "run_eagerly=True", "run_eagerly = True"),
    url="https://www.tensorflow.org/api_docs/python/tf/config/run_functions_eagerly",
    cause="functions_run_eagerly",
)
_SWITCHES = frozenset({"config.run_functions_eagerly", "config.experimental_run_functions_eagerly"})
_USED = re.compile(r"\.fit\(|tf\.function|train_step|\.predict\(|train_on_batch")
_OFF = re.compile(r"run_functions_eagerly\((?!True\))")
"""A call that switches eager functions off again, or whose argument is not the word True."""


def find(program: LintedProgram) -> Matches:
    if not program.mentions(_USED) or program.mentions(_OFF) or is_of_tests(program):
        return
    for event in program.of(Call):
        if event.guards or (event.functions and not event.stack):
            continue  # only if somebody asks for it, or a function that nobody was seen to call
        compiles = event.made.name.endswith("().compile") and event.made.kwargs.get("run_eagerly")
        given = event.made.constant(0, "run_eagerly") if event.api in _SWITCHES else None
        if compiles and event.made.constant(99, "run_eagerly") is True:
            yield Violation(event, {"call": "run_eagerly=True"})
        elif given is True:
            yield Violation(event, {"call": ast.unparse(event.node)})
