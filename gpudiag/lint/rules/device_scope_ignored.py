"""tf.device has no effect on what stands in its block

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

from gpudiag.fix import edit_note
from gpudiag.knowledge import tensorflow_api as api
from gpudiag.lint.program import Call, Entered, LintedProgram
from gpudiag.lint.rule import Matches, Rule, Violation
from gpudiag.lint.settings import device_index
from gpudiag.lint.values import Made, Method, ProjectFunction
from gpudiag.model.report import Severity

RULE = Rule(
    message="tf.device has no effect on {what}",
    severity=Severity.WARNING,
    fix=(edit_note("put tf.device around the operations themselves: {where}"),),
    words=("tf.device(", "tf1.device(", "tensorflow.device(", "v1.device("),
    url="https://www.tensorflow.org/guide/gpu#manual_device_placement",
)
_WHERE = {
    "a session": "where the graph is built",
    "definitions": "inside of the function",
    "a tf.data pipeline": "prefetch with tf.data.experimental.prefetch_to_device, or remove it",
}


def find(program: LintedProgram) -> Matches:
    for event in program.of(Entered):
        if event.made.api == "device" and _is_in_strategy(event) and any(_makes_variables(event.made, program)):
            yield Violation(event, {"what": "variables inside of strategy.scope()", "where": "outside of the scope"})
            continue
        name = event.made.constant(0, "device_name")
        index = device_index(name)
        if event.made.api != "device" or (index is None and (name is not None or not event.effects)):
            continue
        if any(_starts_thread(other, event.made) for other in program.of(Call)):
            yield Violation(event, {"what": "the threads that are started in it", "where": "inside of the function"})
            continue
        if index and (step := _outside(event.made, program)):
            what = f"{step.what} in {step.place(program)}: what was made inside computes on GPU:0"
            yield Violation(
                event, {"what": what, "where": "around the steps, too, or use tf.distribute.OneDeviceStrategy"}
            )
            continue
        if index is None:
            continue
        if kind := _kind(event.body, program):
            what = "the definition of functions" if kind == "definitions" else kind
            yield Violation(event, {"what": what, "where": _WHERE[kind]})


def _outside(device: Made, program: LintedProgram) -> Call | None:
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


def _makes_variables(device: Made, program: LintedProgram) -> Iterator[bool]:
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
    uses = isinstance(function, ProjectFunction) and _TENSORFLOW.search(function.text) is not None
    return uses and isinstance(function, ProjectFunction) and _PLACES.search(function.text) is None


_DEFINITIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda
_KINDS = (("Session", "a session"), ("data.Dataset", "a tf.data pipeline"))
_NEUTRAL = re.compile(r"(?:logging|numpy|time)\.|(?:print|range|len|zip|enumerate|float|int|str|round)\Z")


def _kind(body: list[ast.stmt], program: LintedProgram) -> str | None:
    """Return the kind of what is done in a device scope if all of it ignores the device, else None."""
    if any(isinstance(line, _DEFINITIONS) for line in body):
        kept = (line.value if isinstance(line, ast.Return) else line for line in body)
        return "definitions" if all(isinstance(line, _DEFINITIONS | ast.Name) for line in kept) else None
    kinds = set()
    for node in (node for line in body for node in _calls(line)):
        made = program.by_node.get(id(node))
        name = made.api if made else ast.unparse(node.func)
        if not _NEUTRAL.match(name):
            computes = any(isinstance(inner, ast.BinOp) for arg in node.args for inner in ast.walk(arg))
            known = made is not None and not computes
            kinds.add(next((kind for start, kind in _KINDS if known and name.startswith(start)), None))
    return kinds.pop() if len(kinds) == 1 else None


def _calls(node: ast.AST) -> Iterator[ast.Call]:
    """Yield the calls in a statement, without those in functions that are defined there."""
    if isinstance(node, ast.Call):
        yield node
    for child in () if isinstance(node, _DEFINITIONS) else ast.iter_child_nodes(node):
        yield from _calls(child)
