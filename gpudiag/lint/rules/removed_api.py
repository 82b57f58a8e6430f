"""a function was removed: TensorFlow 2.18 to 2.21 do not have it

Some names moved to tf.compat.v1 or went when TensorFlow 2 came, and some were never in the place that people expect:
set_memory_growth is still below tf.config.experimental. Python raises AttributeError, which try and except often hide.
Each name is reported once for a file.

Bad
    import tensorflow as tf

    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.set_memory_growth(gpu, True)

Good
    import tensorflow as tf

    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)
"""

from __future__ import annotations

import ast
import re

from gpudiag.fix import edit_note
from gpudiag.knowledge import tensorflow_api as api
from gpudiag.lint.program import LintedProgram, Named, removed_name
from gpudiag.lint.rule import Edit, Matches, Rule, Violation, replace
from gpudiag.lint.settings import asks_for_version
from gpudiag.lint.values import ProjectFunction
from gpudiag.model.report import Severity

_SESSIONS = frozenset({"Session", "InteractiveSession"})
RULE = Rule(
    message="TensorFlow 2.18 to 2.21 have no {name}",
    severity=Severity.FAIL,
    fix=(edit_note("write {instead}"),),
    words=tuple(
        sorted({name.rpartition(".")[2] for name in api.REMOVED} - _SESSIONS | {"gpu_options", "gpu:", "GPU:"})
    ),
    url="https://www.tensorflow.org/guide/migrate",
    cause="program_for_tensorflow_1",
    raises=("AttributeError", "ImportError", "ModuleNotFoundError"),
)
_OPTIONS = re.compile(r"ConfigProto|GPUOptions|gpu_options|device\(['\"]/?(?:device:)?[gG][pP][uU]")
"""Signs of GPUs: a session without any of them is ignored, because old code is not always about GPUs."""
_OLD = re.compile(r"(?:\A|_)(?:(?:tensorflow|tf)_?v?1x?|v1)(?=_|\Z)", re.IGNORECASE)
"""The part of a function's name that shows that it is for TensorFlow 1 alone."""


def find(program: LintedProgram) -> Matches:
    seen = set()
    for event in program.of(Named):
        key = removed_name(event.name)
        if (
            key is None
            or (event.module, key) in seen
            or any(asks_for_version(guard) or _expects_it(guard) for guard in event.guards)
        ):
            continue
        around = (outer for function in event.functions for outer in (function, *function.outer))
        if any(map(_is_for_an_older_one, around)):
            continue
        if key in _SESSIONS and not event.module.mentions(_OPTIONS):
            continue
        seen.add((event.module, key))
        instead = api.REMOVED[key]
        edits: tuple[Edit, ...] = ()
        if isinstance(event.node, ast.Attribute) and re.fullmatch(r"tf(?:\.\w+)+", instead):
            written = ast.unparse(event.node)
            root = written.removesuffix(f".{key}")
            if root.isidentifier():
                edits = (replace(event.node, f"{root}{instead.removeprefix('tf')}"),)
        yield Violation(event, {"name": f"tf.{key}", "instead": instead}, edits=edits)


def _is_for_an_older_one(function: ProjectFunction) -> bool:
    """Return whether a function is for TensorFlow 1, by its name or by a decorator such as skipif."""
    nodes: list[ast.AST] = [function.node, *([function.owner.of.node] if function.owner else [])]
    decorators = (decorator for node in nodes for decorator in getattr(node, "decorator_list", ()))
    return bool(_OLD.search(function.name)) or any(map(asks_for_version, decorators))


def _expects_it(guard: ast.AST) -> bool:
    """Return whether an exception handler around the event expects that the name may be missing."""
    if not isinstance(guard, ast.ExceptHandler):
        return False
    caught = ast.unparse(guard.type) if guard.type else "AttributeError"
    return any(name in caught for name in ("AttributeError", "ImportError", "ModuleNotFoundError"))
