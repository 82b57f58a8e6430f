"""a test for a GPU has the same result with and without a GPU

Without its parentheses the name is the function itself, which is true. A list of devices is never equal to a number or
to True, never None, and has no text in it: its elements are PhysicalDevice objects. Its length is never below 0.
tf.test.gpu_device_name() is '/device:GPU:0' or the empty text. A variable of the environment is a text, and only the
empty one is false. One branch is then taken on every machine, and the other one on none.

Bad
    import tensorflow as tf

    if tf.test.is_gpu_available:
        print("training on the GPU")

Good
    import tensorflow as tf

    if tf.config.list_physical_devices("GPU"):
        print("training on the GPU")
"""

from __future__ import annotations

import ast

from gpudiag.fix import edit, edit_note
from gpudiag.knowledge import tensorflow_api as api
from gpudiag.knowledge.variables import SETTINGS
from gpudiag.lint.program import LintedProgram, ProgramEvent, Tested, Variable
from gpudiag.lint.rule import Matches, Rule, Violation, insert_after
from gpudiag.model.report import Severity

_ANSWERS = frozenset(
    {"test.is_built_with_cuda", "test.is_built_with_gpu_support", "test.is_built_with_rocm", "executing_eagerly"}
    | {"config.functions_run_eagerly", "config.get_soft_device_placement", "distribute.has_strategy"}
)
"""Functions without arguments that are called for their answer."""
_LISTS = frozenset({*api.LISTS, *api.FIX_ALLOCATORS})
_COUNT = edit("len(tf.config.list_physical_devices('GPU'))", "compare the number of GPUs")
RULE = Rule(
    message="{name} is always {answer}, with or without a GPU: {why}",
    severity=Severity.WARNING,
    fix=(edit("{call}", "call the function"),),
    words=(*sorted(name.rpartition(".")[2] for name in _ANSWERS | _LISTS), "environ.get(", "getenv("),
    url="https://www.tensorflow.org/api_docs/python/tf/config/list_physical_devices",
)


def find(program: LintedProgram) -> Matches:
    for event in program.of(Tested):
        name = api.canonical(event.name)
        if name in _ANSWERS or name in _LISTS:
            written = ast.unparse(event.node)
            given = "('GPU')" if name in api.LISTS else "()"
            edits = (insert_after(event.node, given),) if name in _ANSWERS else ()
            figures = {"name": written, "answer": "true", "why": "a function is tested, not called"}
            yield Violation(event, {**figures, "call": f"{written}{given}"}, edits=edits)
        elif name == "os.environ":
            if any(_is_around(event.node, other) for other in program.events):
                why = "a variable is a text, and any text but '' is true, also '0'"
                figures = {"name": ast.unparse(event.node), "answer": "true", "why": why}
                yield Violation(event, figures, fix=(edit_note("compare the text with what means yes: == '1'"),))
        elif not name:
            answer = str(event.always).lower()
            figures = {"name": ast.unparse(event.node), "answer": answer, "why": "what is compared is never the same"}
            counted = next((node for node in ast.walk(event.node) if isinstance(node, ast.Call)), None)
            if counted is not None and ast.unparse(counted.func) == "len":
                positive = edit(f"{ast.unparse(counted)} > 0", "true if there is one")
                yield Violation(event, {**figures, "why": "a length is never below 0"}, fix=(positive,))
            else:
                yield Violation(event, figures, fix=(_COUNT,))


def _is_around(test: ast.AST, event: ProgramEvent) -> bool:
    """Return whether a test decides about a setting of GPUs."""
    setting = getattr(event, "api", "") in api.BEFORE_DEVICES or (
        isinstance(event, Variable) and event.name in SETTINGS
    )
    return setting and any(test is node for guard in event.guards for node in ast.walk(guard))
