"""a process is forked after TensorFlow has made its devices: TensorFlow hangs or fails in the child

On Linux multiprocessing forks up to Python 3.13. A process that has initialised CUDA cannot be forked and use the GPU
in the child: calls end with CUDA_ERROR_NOT_INITIALIZED, or wait forever for a thread that was not copied. To list the
devices is enough for that (2.21, simulated GPUs): only import tensorflow may come before. Children that do not use
TensorFlow are not concerned.

Bad
    import multiprocessing
    import tensorflow as tf

    model = tf.keras.models.load_model("model.keras")


    def work():
        model.predict(tf.zeros([1, 4]))


    multiprocessing.Process(target=work).start()

Good
    import multiprocessing
    import tensorflow as tf


    def work():
        tf.keras.models.load_model("model.keras").predict(tf.zeros([1, 4]))


    if __name__ == "__main__":
        multiprocessing.set_start_method("spawn")
        multiprocessing.Process(target=work).start()
"""

from __future__ import annotations

import ast
import re

from gpudiag.fix import Role, edit, edit_note
from gpudiag.lint.program import Call, LintedProgram
from gpudiag.lint.rule import Matches, Rule, Violation
from gpudiag.lint.values import Const, Made, ProjectFunction, Value, devices
from gpudiag.model.report import Severity

RULE = Rule(
    message="{call} forks after {what} in {place}: TensorFlow hangs or fails in the child",
    severity=Severity.WARNING,
    fix=(
        edit_note("start the children before TensorFlow is used"),
        edit("multiprocessing.get_context('spawn')", "start them by this context", role=Role.ALTERNATIVE),
    ),
    words=("multiprocessing", "multiprocess", "ProcessPoolExecutor", "os.fork"),
    url="https://docs.python.org/3/library/multiprocessing.html#contexts-and-start-methods",
)
_FORKS = re.compile(
    r"(?:multiprocessing|multiprocess|billiard)(?:\.pool|\.context|\.get_context\(\))?\.(?:Process|Pool)\Z"
    r"|concurrent\.futures\.(?:process\.)?ProcessPoolExecutor\Z|os\.fork\Z"
)
_OTHER_METHOD = re.compile(r"set_start_method\(\s*(?:method\s*=\s*)?['\"](?:spawn|forkserver)")
_TENSORFLOW = re.compile(
    r"\b(?:tf|tensorflow|keras)\b|\b(?:model|net|network|session|sess|estimator|encoder|agent|K)\s{0,9}[.(]"
)
"""Signs that a function uses TensorFlow, or an object that its parent made with it."""
_MADE = ("tensorflow.", "keras.")
_GIVEN = frozenset(
    {"map", "map_async", "imap", "imap_unordered", "starmap", "starmap_async", "apply", "apply_async", "submit"}
)
"""Methods of a pool whose first argument is the function that the children call."""


def find(program: LintedProgram) -> Matches:
    if program.mentions(_OTHER_METHOD):
        return
    for event in program.of(Call):
        if not _FORKS.match(event.made.name) or _spawns(event.made):
            continue
        earlier = event.before("devices", "session")
        called = _called(event.made, program)
        if called is not None and any(map(_uses_tensorflow, called)):
            earlier = event.before("devices", "session", "query", "allocators")
        elif called is not None:
            continue
        if earlier is not None:
            yield Violation(
                event, {"call": f"{_name(event.node)}()", "what": earlier.what, "place": earlier.place(program)}
            )


def _called(made: Made, program: LintedProgram) -> list[ProjectFunction] | None:
    """Return the functions of the project that the children call, as far as they are known; None for an unknown one."""
    if made.name.endswith("Process"):
        target = _function(made.argument(1, "target"))
        return None if target is None else [target]
    if made.name == "os.fork":
        return None
    given = [made.kwargs.get("initializer"), made.argument(1, "initializer")]
    given += [call.made.argument(0, "func") for call in program.of(Call) if _pool(call.made) is made]
    return [function for function in map(_function, given) if function is not None]


def _pool(made: Made) -> Value | None:
    """Return the pool that a call gives work to, or None."""
    return made.owner if made.name.rpartition(".")[2] in _GIVEN else None


def _function(value: Value | None) -> ProjectFunction | None:
    """Return the function of the project that a value is, or that its ``partial`` calls."""
    if isinstance(value, Made) and value.name == "functools.partial" and value.args:
        value = value.args[0]
    return value if isinstance(value, ProjectFunction) else None


def _uses_tensorflow(function: ProjectFunction, depth: int = 3) -> bool:
    """Return whether a function uses TensorFlow, directly or through names of its module."""
    if _TENSORFLOW.search(function.text):
        return True
    named = [scope[word] for scope in function.scopes for word in function.words - {function.name} if word in scope]
    if any(isinstance(value, Made) and value.name.startswith(_MADE) and not devices(value) for value in named):
        return True
    return depth > 0 and any(
        isinstance(value, ProjectFunction) and _uses_tensorflow(value, depth - 1) for value in named
    )


def _spawns(made: Made) -> bool:
    """Return whether a start method is chosen that does not fork."""
    context = made.kwargs.get("mp_context")
    if context is not None:
        return not (isinstance(context, Made) and context.constant(0, "method") == "fork")
    if "get_context()" in made.name and isinstance(made.owner, Made):
        given = made.owner.argument(0, "method")
        return not (given is None or (isinstance(given, Const) and given.value in ("fork", None)))
    return isinstance(made.kwargs.get("method"), Const)


def _name(node: ast.AST) -> str:
    return ast.unparse(node.func) if isinstance(node, ast.Call) else "this"
