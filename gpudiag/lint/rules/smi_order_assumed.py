"""a number of nvidia-smi is used for CUDA, which counts in another order unless CUDA_DEVICE_ORDER=PCI_BUS_ID

nvidia-smi, NVML, pynvml and GPUtil number the GPUs by their PCI addresses. CUDA begins with the fastest one. On a
machine with different cards the number then means another card than the one that was looked at.

Bad
    import os
    import GPUtil

    os.environ["CUDA_VISIBLE_DEVICES"] = str(GPUtil.getFirstAvailable(order="memory")[0])
    import tensorflow as tf

Good
    import os
    import GPUtil

    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    os.environ["CUDA_VISIBLE_DEVICES"] = str(GPUtil.getFirstAvailable(order="memory")[0])
    import tensorflow as tf
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from gpudiag.fix import edit
from gpudiag.knowledge import tensorflow_api as api
from gpudiag.knowledge.variables import DEVICE_ORDER
from gpudiag.lint.program import Call, LintedProgram, ProgramEvent, Variable
from gpudiag.lint.rule import Matches, Rule, Violation
from gpudiag.lint.settings import MASK
from gpudiag.lint.values import Const
from gpudiag.model.report import Severity

_SOURCES = ("nvidia-smi", "nvidia_smi", "nvml", "GPUtil", "gpustat")
RULE = Rule(
    message="a number of nvidia-smi is given to {setting}: CUDA counts in another order unless "
    "CUDA_DEVICE_ORDER=PCI_BUS_ID",
    severity=Severity.NOTE,
    fix=(edit("os.environ['CUDA_DEVICE_ORDER'] = 'PCI_BUS_ID'", "set it before import tensorflow"),),
    words=_SOURCES,
    also=(MASK, "set_visible_devices"),
    url="https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-environment-variables",
    cause="gpus_in_another_order",
)
_ORDERED = re.compile(rf"{DEVICE_ORDER}|uuid|GPU-", re.IGNORECASE)
_SAYS_WHICH = re.compile(r"mem|util|free|avail|temperature|power|process", re.IGNORECASE)
_SOURCE = re.compile("|".join(_SOURCES))


def find(program: LintedProgram) -> Matches:
    if program.mentions(_ORDERED):
        return
    for event in program.events:
        setting = _setting(event)
        texts = [*_origins(event, program)] if setting else []
        if any(map(_SOURCE.search, texts)) and any(map(_SAYS_WHICH.search, texts)):
            yield Violation(event, {"setting": setting})


def _setting(event: ProgramEvent) -> str:
    if isinstance(event, Variable) and event.name == MASK and not isinstance(event.value, Const):
        return MASK
    return "set_visible_devices" if isinstance(event, Call) and event.api == api.VISIBLE else ""


def _origins(event: ProgramEvent, program: LintedProgram) -> Iterator[str]:
    """Yield the texts of the functions and assignments from which the value of a setting comes."""
    trees = [piece.tree for module in program.modules for piece in module.source.pieces if piece.tree]
    functions = {node.name: node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    top: list[ast.AST] = [
        line for tree in trees for line in tree.body if not isinstance(line, ast.FunctionDef | ast.ClassDef)
    ]
    around: list[list[ast.AST]] = [[outer.node, *top] for outer in reversed(event.functions)]
    function = event.functions[-1].node if event.functions else None
    start = event.value_node if isinstance(event, Variable) and event.value_node is not None else event.node
    todo: list[tuple[ast.AST, list[ast.AST]]] = [(start, [*around, top][0])]
    parameters = {argument.arg for argument in function.args.args} if function is not None else set()
    seen: set[str] = set()
    for _ in range(_STEPS):
        if not todo:
            return
        node, places = todo.pop()
        yield _DOCSTRING.sub("", ast.unparse(node))
        calls = {_last(call.func) for call in ast.walk(node) if isinstance(call, ast.Call)}
        todo += [(functions[name], []) for name in sorted(calls & functions.keys() - seen)]
        names = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)} - seen
        seen |= names | calls
        if places and names & parameters and event.stack:
            call = event.stack[-1][2]
            given = [*call.args, *(keyword.value for keyword in call.keywords)] if isinstance(call, ast.Call) else []
            todo += [(value, [*around, top, top][1]) for value in given]
        for place in places:
            todo += [(other.value, places) for other in ast.walk(place) if _binds(other, names)]  # type: ignore[attr-defined]


def _last(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _binds(node: ast.AST, names: set[str]) -> bool:
    """Return whether a statement assigns one of some names."""
    targets = node.targets if isinstance(node, ast.Assign) else []
    bound = {inner.id for target in targets for inner in ast.walk(target) if isinstance(inner, ast.Name)}
    return not bound.isdisjoint(names)


_STEPS = 30
_DOCSTRING = re.compile(r'"""[^"]{0,20000}"""')
