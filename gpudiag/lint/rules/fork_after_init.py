"""{call} forks after {what} in {place}: TensorFlow hangs or fails in the child

On Linux multiprocessing forks up to Python 3.13. A process that has initialised CUDA cannot be forked and use the GPU
in the child: calls end with CUDA_ERROR_NOT_INITIALIZED, or wait forever for a thread that was not copied.

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

from gpudiag.lint.program import Call, Program
from gpudiag.lint.rule import Match, Matches, Rule
from gpudiag.lint.values import Const, Function, Made
from gpudiag.model.report import Severity

RULE = Rule(
    severity=Severity.WARNING,
    advice="start children before TensorFlow is used, or by multiprocessing.get_context('spawn')",
    words=("multiprocessing", "multiprocess", "ProcessPoolExecutor", "os.fork"),
    url="https://docs.python.org/3/library/multiprocessing.html#contexts-and-start-methods",
)
_FORKS = re.compile(
    r"(?:multiprocessing|multiprocess|billiard)(?:\.pool|\.context|\.get_context\(\))?\.(?:Process|Pool)\Z"
    r"|concurrent\.futures\.(?:process\.)?ProcessPoolExecutor\Z|os\.fork\Z"
)
_OTHER_METHOD = re.compile(r"set_start_method\(\s*(?:method\s*=\s*)?['\"](?:spawn|forkserver)")
_TENSORFLOW = re.compile(r"\b(?:tf|tensorflow|keras|K|model|net|sess|session|predict|train|agent)\w*\b")


def find(program: Program) -> Matches:
    if program.mentions(_OTHER_METHOD):
        return
    for event in program.of(Call):
        if not _FORKS.match(event.made.name) or _spawns(event.made):
            continue
        earlier = event.before("devices", "session")
        target = event.made.kwargs.get("target")
        if earlier is None or (isinstance(target, Function) and not _TENSORFLOW.search(ast.unparse(target.node))):
            continue
        yield Match(event, {"call": f"{_name(event.node)}()", "what": earlier.what, "place": earlier.place(program)})


def _spawns(made: Made) -> bool:
    """Return whether the start method is given, and does not fork."""
    context = made.kwargs.get("mp_context")
    if context is not None:
        return not (isinstance(context, Made) and context.constant(0, "method") == "fork")
    if "get_context()" in made.name and isinstance(made.owner, Made):
        given = made.owner.argument(0, "method")
        return not (given is None or (isinstance(given, Const) and given.value in ("fork", None)))
    return isinstance(made.kwargs.get("method"), Const)


def _name(node: ast.AST) -> str:
    return ast.unparse(node.func) if isinstance(node, ast.Call) else "this"
