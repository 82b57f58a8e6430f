"""set_visible_devices is given {given} without a type: it hides every other device, the CPU too

Without the second argument, the list names all devices that stay visible, of every type. TensorFlow then ends at the
first operation: "No CPU devices are available in this process".

Bad
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    tf.config.set_visible_devices(gpus[0])

Good
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    tf.config.set_visible_devices(gpus[0], "GPU")
"""

from __future__ import annotations

import ast

from gpudiag.fix import edit
from gpudiag.knowledge import tensorflow_api as api
from gpudiag.lint.program import Program
from gpudiag.lint.rule import Match, Matches, Rule, insert_after
from gpudiag.lint.values import Const, is_empty_list, of_gpus
from gpudiag.model.report import Severity

RULE = Rule(
    severity=Severity.FAIL,
    fix=(edit("{call}", "name the type"),),
    words=("set_visible_devices",),
    url="https://www.tensorflow.org/api_docs/python/tf/config/set_visible_devices",
)


def find(program: Program) -> Matches:
    for event in program.calls(api.VISIBLE):
        kind = event.made.argument(1, "device_type")
        if kind is not None and not (isinstance(kind, Const) and kind.value is None):
            continue
        value = event.made.argument(0, "devices")
        given = "GPUs" if of_gpus(value) else "an empty list" if is_empty_list(value) else ""
        if not given:
            continue
        node = event.made.node
        first = node.args[0] if node.args else node.keywords[0].value
        call = f"{ast.unparse(node.func)}({ast.unparse(first)}, 'GPU')"
        alone = len(node.args) + len(node.keywords) == 1
        after = ", 'GPU'" if node.args else ", device_type='GPU'"
        yield Match(event, {"given": given, "call": call}, edits=(insert_after(first, after),) if alone else ())
