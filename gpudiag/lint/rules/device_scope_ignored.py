"""tf.device has no effect on {what}

A device scope holds for operations while they are created in it. A session runs its graph where the graph says, a
function is traced by its first call, wherever that is, and a tf.data pipeline is always on the CPU. A thread has its
own scopes: one that is started inside of tf.device is not in it (2.21, simulated GPUs).

Bad
    import tensorflow as tf

    with tf.device("/GPU:1"):

        @tf.function
        def double(x):
            return x * 2

Good
    import tensorflow as tf


    @tf.function
    def double(x):
        with tf.device("/GPU:1" if len(tf.config.list_physical_devices("GPU")) > 1 else "/GPU:0"):
            return x * 2
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from gpudiag.knowledge import tensorflow_api as api
from gpudiag.lint.program import Call, Entered, Program
from gpudiag.lint.rule import Match, Matches, Rule, change
from gpudiag.lint.settings import device_index
from gpudiag.lint.values import Function, Made, Method
from gpudiag.model.report import Severity

RULE = Rule(
    severity=Severity.WARNING,
    fix=(change("put tf.device around the operations themselves: {where}"),),
    words=("tf.device(", "tf1.device(", "tensorflow.device(", "v1.device("),
    url="https://www.tensorflow.org/guide/gpu#manual_device_placement",
)
_WHERE = {
    "a session": "where the graph is built",
    "definitions": "inside of the function",
    "a tf.data pipeline": "prefetch with tf.data.experimental.prefetch_to_device, or remove it",
}


def find(program: Program) -> Matches:
    for event in program.of(Entered):
        if event.made.api == "device" and _is_in_strategy(event) and any(_makes_variables(event.made, program)):
            yield Match(event, {"what": "variables inside of strategy.scope()", "where": "outside of the scope"})
            continue
        name = event.made.constant(0, "device_name")
        index = device_index(name)
        if event.made.api != "device" or (index is None and (name is not None or not event.effects)):
            continue
        if any(_starts_thread(other, event.made) for other in program.of(Call)):
            yield Match(event, {"what": "the threads that are started in it", "where": "inside of the function"})
            continue
        if index and (step := _outside(event.made, program)):
            what = f"{step.what} in {step.place(program)}: what was made inside computes on GPU:0"
            yield Match(event, {"what": what, "where": "around the steps, too, or use tf.distribute.OneDeviceStrategy"})
            continue
        if index is None:
            continue
        kinds = {_kind(statement, program) for statement in event.body}
        if len(kinds) == 1 and (kind := kinds.pop()) is not None:
            yield Match(
                event, {"what": "the definition of functions" if kind == "definitions" else kind, "where": _WHERE[kind]}
            )


def _outside(device: Made, program: Program) -> Call | None:
    """Return the first step of a model that was made in a device scope, if all its steps are outside of any."""
    steps = [*program.runs_of(lambda maker: device in maker.frame.contexts)]
    placed = any(context.api == "device" or "scope" in context.api for step in steps for context in step.frame.contexts)
    return steps[0] if steps and not placed else None


_TENSORFLOW = re.compile(r"\b(?:tf|tensorflow|keras|model|layers)\b")
_PLACES = re.compile(r"\.device\(|\.scope\(")


def _is_in_strategy(event: Entered) -> bool:
    """Return whether a device scope is inside of the scope of a strategy that mirrors variables."""
    owners = (context.owner for context in event.frame.contexts if context.api.endswith("().scope"))
    return any(isinstance(owner, Made) and owner.api in _MIRRORS for owner in owners)


_MIRRORS = api.STRATEGIES - {"distribute.OneDeviceStrategy", "distribute.experimental.CentralStorageStrategy"}
_VARIABLES = re.compile(r"(?:Variable|keras\.(?:Variable|Sequential|Model|layers\.[A-Z]\w+|models\.\w+))\Z")


def _makes_variables(device: Made, program: Program) -> Iterator[bool]:
    """Yield, for each call inside a device scope, whether it makes variables."""
    inside = (other for other in program.of(Call) if device in other.frame.contexts)
    return (_VARIABLES.match(call.api) is not None for call in inside)


def _starts_thread(event: Call, device: Made) -> bool:
    """Return whether a thread that uses TensorFlow is started in a device scope: each thread has its own scopes."""
    if not any(context is device for context in event.frame.contexts):
        return False
    thread = event.made.name == "threading.Thread"
    if not thread and not event.made.name.endswith("ThreadPoolExecutor().submit"):
        return False
    target = event.made.argument(1, "target") if thread else event.made.argument(0, "fn")
    function = target.function if isinstance(target, Method) else target
    uses = isinstance(function, Function) and _TENSORFLOW.search(function.text) is not None
    return uses and isinstance(function, Function) and _PLACES.search(function.text) is None


def _kind(statement: ast.stmt, program: Program) -> str | None:
    """Return the kind of a statement that ignores the device, or None for any other statement."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return "definitions"
    if isinstance(statement, ast.With):
        session = all(_api(item.context_expr, program) == "Session" for item in statement.items)
        names = {item.optional_vars.id for item in statement.items if isinstance(item.optional_vars, ast.Name)}
        return "a session" if session and all(_only_runs(inner, names) for inner in statement.body) else None
    if isinstance(statement, ast.Assign | ast.Expr | ast.Return) and statement.value is not None:
        name = _api(statement.value, program)
        if name == "Session":
            return "a session"
        if name.startswith("data.Dataset"):
            return "a tf.data pipeline"
    return None


def _api(node: ast.expr, program: Program) -> str:
    made = program.by_node.get(id(node))
    return made.api if made else ""


def _only_runs(statement: ast.stmt, sessions: set[str]) -> bool:
    """Return whether a statement calls nothing but the session, and functions that print."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Call):
            func = node.func
            own = isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name) and func.value.id in sessions
            if not own and not (isinstance(func, ast.Name) and func.id in ("print", "range", "len", "zip")):
                return False
    return True
