"""{name} is set to {value!r}, which is not a text: os.environ raises TypeError

Variables of the environment are texts. In a branch that is seldom run, or inside of try and except, the error is met
late or never, and the variable stays as it was.

Bad
    import os

    os.environ["CUDA_VISIBLE_DEVICES"] = 0
    import tensorflow as tf

Good
    import os

    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0")
    import tensorflow as tf
"""

from __future__ import annotations

import ast

from gpudiag.knowledge.variables import PIECES, SETTINGS
from gpudiag.lint.program import Program, Variable
from gpudiag.lint.rule import Match, Matches, Rule, replace
from gpudiag.lint.values import Const
from gpudiag.model.report import Severity

RULE = Rule(
    severity=Severity.FAIL,
    advice="write {instead!r}",
    words=("environ", "putenv"),
    also=PIECES,
    url="https://docs.python.org/3/library/os.html#os.environ",
)


def find(program: Program) -> Matches:
    for event in program.of(Variable):
        if (
            event.name not in SETTINGS
            or not isinstance(event.value, Const)
            or isinstance(event.value.value, str | bytes)
            or event.value.assumed
        ):
            continue
        value = event.value.value
        instead = str(value).lower() if isinstance(value, bool) else str(value)
        node = event.value_node
        spelt = isinstance(node, ast.Constant) and value is not None
        edits = (replace(node, repr(instead)),) if spelt and node is not None else ()
        advice = f"del os.environ[{event.name!r}]" if value is None else ""
        yield Match(
            event, {"name": event.name, "value": value, "instead": instead}, node=node, edits=edits, advice=advice
        )
