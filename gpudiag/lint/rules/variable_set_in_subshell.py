"""this shell sets {name} and ends: this program and what it starts do not see it

os.system and subprocess start a new shell. What it exports is gone when it ends, and so it is for a line of a notebook
that begins with an exclamation mark.

Bad
    import os

    os.system("export CUDA_VISIBLE_DEVICES=2")
    import tensorflow as tf

Good
    import os

    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "2")
    import tensorflow as tf
"""

from __future__ import annotations

import ast
import re

from gpudiag.knowledge.variables import SETTINGS
from gpudiag.lint.program import Call, Program
from gpudiag.lint.rule import Edit, Match, Matches, Rule, replace
from gpudiag.lint.values import Const
from gpudiag.model.report import Severity

RULE = Rule(
    severity=Severity.WARNING,
    advice="os.environ[{name!r}] = {value!r}",
    words=("export CUDA", "export TF_", "export XLA", "export NVIDIA", "setenv ", "set CUDA", "set TF"),
    url="https://docs.python.org/3/library/os.html#os.system",
)
_EXPORT = re.compile(r"\s*(?:export\s+|set\s+|setenv\s+)?(\w+)(?:=|\s+)([^;&|\n]*)\Z")
_SHELLS = frozenset({"os.system", "os.popen", "subprocess.run", "subprocess.call", "subprocess.Popen"}) | frozenset(
    {"subprocess.check_call", "subprocess.check_output", "subprocess.getoutput"}
)


def find(program: Program) -> Matches:
    for event in program.of(Call):
        made = event.made
        if made.name not in _SHELLS or not made.args or not isinstance(made.args[0], Const):
            continue
        command = made.args[0].value
        found = _EXPORT.match(command) if isinstance(command, str) else None
        if found and found[1] in SETTINGS and ("=" in str(command) or str(command).lstrip().startswith("setenv")):
            value = found[2].strip().strip("\"'")
            node = event.node
            edits: tuple[Edit, ...] = ()
            if made.name == "os.system" and isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                module = ast.unparse(node.func.value)
                if module.isidentifier() and value and "$" not in value:
                    edits = (replace(node, f"{module}.environ[{found[1]!r}] = {value!r}"),)
            yield Match(event, {"name": found[1], "value": value}, edits=edits if _is_statement(program, node) else ())


def _is_statement(program: Program, call: ast.AST) -> bool:
    """Return whether a call is a whole statement, so that an assignment may take its place."""
    trees = (piece.tree for module in program.modules for piece in module.source.pieces if piece.tree)
    return any(isinstance(node, ast.Expr) and node.value is call for tree in trees for node in ast.walk(tree))
