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
import re

from gpudiag.knowledge import variables
from gpudiag.lint.program import Program, Variable
from gpudiag.lint.rule import Match, Matches, Rule, quoted, replace
from gpudiag.lint.values import Const
from gpudiag.model.report import Severity

RULE = Rule(
    severity=Severity.WARNING,
    advice="{instead}",
    words=(variables.FORCE_GROWTH, variables.ALLOCATOR, variables.THREAD_MODE, "CUDA_DEVICE_ORDER", "TF_CPP_MIN_LOG"),
    url="https://www.tensorflow.org/guide/gpu#limiting_gpu_memory_growth",
    cause="growth_not_read",
)


def find(program: Program) -> Matches:
    for event in program.of(Variable):
        value = event.value.value if isinstance(event.value, Const) else None
        if isinstance(value, str) and (wrong := _wrong(event.name, value)):
            read, right = wrong
            node = event.value_node
            spelt = isinstance(node, ast.Constant) and node.value == value
            edits = (replace(node, quoted(event, node, right)),) if spelt and right and node is not None else ()
            instead = f"write {right!r}" if right else "remove it, or write one that is read"
            figures = {"name": event.name, "value": value, "read": read, "instead": instead}
            yield Match(event, figures, node=node if spelt else None, edits=edits)


def _wrong(name: str, value: str) -> tuple[str, str | None] | None:
    """Return which values are read, and the one that is meant, of a value that is not read; None for one that is."""
    if name == variables.FORCE_GROWTH and value not in variables.GROWTH_VALUES:
        return "only 'true' and 'false' are read", variables.growth_meant_by(value)
    if name == variables.ALLOCATOR and value and value not in variables.ALLOCATORS:
        return f"only {', '.join(variables.ALLOCATORS)} are read", variables.allocator_meant_by(value)
    if name == variables.THREAD_MODE and value.lower() not in variables.THREAD_MODES:
        return f"only {', '.join(variables.THREAD_MODES)} are read, and no GPU device is made", None
    if name == "CUDA_DEVICE_ORDER" and value not in ("FASTEST_FIRST", "PCI_BUS_ID"):
        return "only FASTEST_FIRST and PCI_BUS_ID are read", "PCI_BUS_ID" if "PCI" in value.upper() else None
    if name == "TF_CPP_MIN_LOG_LEVEL" and not re.match(r"\s*[+-]?\d", value):
        return "only whole numbers, 0 to 3, are read", None
    return None
