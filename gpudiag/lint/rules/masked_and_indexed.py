"""a GPU is chosen by {index} among those that {place} has already masked by {mask}

CUDA_VISIBLE_DEVICES numbers the visible GPUs from 0. A process that is masked to its own GPU sees one, and every index
above 0 is beyond it: the list has no such element, or a slice of it is empty and the process has no GPU.

Bad
    import os
    import tensorflow as tf

    rank = int(os.environ["LOCAL_RANK"])
    os.environ["CUDA_VISIBLE_DEVICES"] = str(rank)
    gpus = tf.config.list_physical_devices("GPU")
    tf.config.set_visible_devices(gpus[rank], "GPU")

Good
    import os
    import tensorflow as tf

    rank = int(os.environ["LOCAL_RANK"])
    gpus = tf.config.list_physical_devices("GPU")
    tf.config.set_visible_devices(gpus[rank], "GPU")
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from gpudiag.knowledge import tensorflow_api as api
from gpudiag.lint.program import Call, Program, Variable
from gpudiag.lint.rule import Match, Matches, Rule, change
from gpudiag.lint.settings import MASK, entries, mask_before, masks
from gpudiag.lint.values import devices, elements
from gpudiag.model.report import Severity

RULE = Rule(
    severity=Severity.WARNING,
    fix=(change("take the first GPU, gpus[0], or leave the mask out"),),
    words=(MASK,),
    also=("_devices(", "set_memory_growth", "_device_configuration", "device("),
    url="https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-environment-variables",
    cause="gpus_renumbered",
)
_STARTS_ITSELF = re.compile(r"sys\.argv\[0\]|__file__|sys\.executable, \*sys\.argv|sys\.argv\)")
_COMMON = frozenset({"str", "int", "args", "self", "format", "os", "environ", "sys", "config", "options", "opt", "env"})
_RANK = re.compile(r"rank", re.IGNORECASE)


def find(program: Program) -> Matches:
    starts_itself = program.mentions(_STARTS_ITSELF)
    of_children = [mask for mask in masks(program) if mask.how == "env"] if starts_itself else []
    for event in program.calls("device", api.VISIBLE, api.GROWTH, api.LOGICAL):
        for index in _indices(event):
            mask = next((mask for mask in [mask_before(event), *of_children] if mask and _same(mask, index)), None)
            if mask is not None:
                written = ast.unparse(mask.value_node) if mask.value_node is not None else MASK
                figures = {"index": ast.unparse(index), "mask": written, "place": mask.place(program)}
                yield Match(event, figures)
                break


_NUMBERED = re.compile(r"gpu:\Z|gpu:[%{]", re.IGNORECASE)


def _indices(event: Call) -> Iterator[ast.expr]:
    """Yield the expressions, of unknown value, by which a call chooses a GPU."""
    if event.api == "device":
        name = event.made.node.args[0] if event.made.node.args else None
        inner = [] if name is None or isinstance(name, ast.Constant) else ast.walk(name)
        texts = (node.value for node in inner if isinstance(node, ast.Constant) and isinstance(node.value, str))
        if name is not None and any(map(_NUMBERED.search, texts)):
            yield name
        return
    for part in elements(event.made.argument(0, "devices" if event.api == api.VISIBLE else "device")):
        listed = devices(part)
        if listed is not None and listed.by is not None:
            yield listed.by


def _same(mask: Variable, index: ast.expr) -> bool:
    """Return whether a mask of one GPU is computed from the same value as an index."""
    if mask.value_node is None or isinstance(mask.value_node, ast.Constant) or len(entries(mask.value) or [""]) > 1:
        return False
    names, others = _names(mask.value_node), _names(index)
    ranks = [any(map(_RANK.search, those)) for those in (names, others)]
    return bool(names & others) or all(ranks)


def _names(node: ast.expr) -> set[str]:
    found = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
    return (found | {inner.attr for inner in ast.walk(node) if isinstance(inner, ast.Attribute)}) - _COMMON
