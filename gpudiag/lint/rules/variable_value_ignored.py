"""{name}={value!r} has no effect: {read}

TensorFlow and CUDA compare the values of these variables with a few words, letter by letter, and go on as if the
variable were not set if it is none of them. For TF_FORCE_GPU_ALLOW_GROWTH a line on standard error says so, for the
others nothing does.

Bad
    import os

    os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] = "1"
    import tensorflow as tf

Good
    import os

    os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
    import tensorflow as tf
"""

from __future__ import annotations

import ast

from gpudiag.knowledge.variables import ACCEPTED, READ_BY_PYTHON
from gpudiag.lint.program import Program, Variable
from gpudiag.lint.rule import Match, Matches, Rule, quoted, replace
from gpudiag.lint.values import Const
from gpudiag.model.report import Severity

RULE = Rule(
    severity=Severity.WARNING,
    advice="{instead}",
    words=("CUDA_", "TF_", "XLA_"),
    also=(*ACCEPTED, *READ_BY_PYTHON),
    url="https://www.tensorflow.org/guide/gpu#limiting_gpu_memory_growth",
    cause="growth_not_read",
)


def find(program: Program) -> Matches:
    for event in program.of(Variable):
        if event.how == "putenv" and event.name in READ_BY_PYTHON:
            read = "os.putenv does not change os.environ, and TensorFlow looks for it there"
            figures = {"name": event.name, "value": "...", "read": read}
            yield Match(event, {**figures, "instead": f"os.environ[{event.name!r}] = ..."})
            continue
        value = event.value.value if isinstance(event.value, Const) else None
        accepted = ACCEPTED.get(event.name)
        if accepted is not None and isinstance(value, str) and not accepted.reads(value):
            right = accepted.meant_by(value)
            node = event.value_node
            spelt = isinstance(node, ast.Constant) and node.value == value
            edits = (replace(node, quoted(event, node, right)),) if spelt and right and node is not None else ()
            instead = f"write {right!r}" if right else "remove it, or write one that is read"
            read = f"{accepted.read}; {accepted.otherwise}"
            yield Match(
                event,
                {"name": event.name, "value": value, "read": read, "instead": instead},
                node=node if spelt else None,
                edits=edits,
            )
