"""a setting is never made: nothing calls its function, or a test keeps every machine with GPUs from it

A function does nothing until it is called. This program is run as it is, no other file imports it, and the name of the
function is nowhere in it but in its definition. Below `if not gpus:` a setting of GPUs is made where there are none.

Bad
    import tensorflow as tf


    def setup_gpus():
        for gpu in tf.config.list_physical_devices("GPU"):
            tf.config.experimental.set_memory_growth(gpu, True)


    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile("adam", "mse")
    model.fit(x, y)

Good
    import tensorflow as tf


    def setup_gpus():
        for gpu in tf.config.list_physical_devices("GPU"):
            tf.config.experimental.set_memory_growth(gpu, True)


    setup_gpus()
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile("adam", "mse")
    model.fit(x, y)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gpudiag.fix import edit, edit_note
from gpudiag.knowledge import tensorflow_api as api
from gpudiag.knowledge.variables import FORCE_GROWTH, SETTINGS
from gpudiag.lint.program import Call, LintedProgram, ProgramEvent, Tested, Variable
from gpudiag.lint.rule import Matches, Rule, Violation
from gpudiag.lint.settings import MASK, is_never_called, is_of_tests
from gpudiag.lint.values import is_empty_list
from gpudiag.model.report import Severity

_CALLS = ("set_memory_growth", "set_visible_devices", "_device_configuration", "set_global_policy")
RULE = Rule(
    message="{what} is never made: {why}",
    severity=Severity.WARNING,
    fix=(edit("{function}()", "call it directly after import tensorflow, or remove it"),),
    words=(*_CALLS, MASK, FORCE_GROWTH),
    url="https://www.tensorflow.org/guide/gpu#limiting_gpu_memory_growth",
)
_SETTERS = api.BEFORE_DEVICES | {"keras.mixed_precision.set_global_policy"}


def find(program: LintedProgram) -> Matches:
    if program.shared or is_of_tests(program) or not _trains(program):
        return
    reported = set()
    for call in program.calls(*api.DEVICE_SETTERS, dead=True):
        for_gpus = not is_empty_list(call.made.argument(0, "devices"))
        if for_gpus and call.frame.dead is not None and not _never_varies(call.frame.dead, program):
            why = f"'if {ast.unparse(call.frame.dead)}:' keeps every machine with GPUs from it"
            fix = edit_note("turn the test around, or take it out")
            yield Violation(call, {"what": ast.unparse(call.made.node.func), "why": why}, fix=(fix,))
    for event in program.events:
        function = event.functions[0] if len(event.functions) == 1 and not event.stack else None
        what = _setting(event)
        if what and function is not None and function.node not in reported and is_never_called(function, program):
            reported.add(function.node)
            yield Violation(event, {"function": function.name, "what": what, "why": f"nothing calls {function.name}()"})


def _never_varies(test: ast.AST, program: LintedProgram) -> bool:
    """Return whether a test has the same answer on every machine, which another rule says."""
    nodes = [*ast.walk(test)]
    return any(tested.node in nodes for tested in program.of(Tested))


def _setting(event: ProgramEvent) -> str:
    """Return what an event sets about GPUs; "" if it sets nothing."""
    if isinstance(event, Call) and event.api in _SETTERS and isinstance(event.node, ast.Call):
        return ast.unparse(event.node.func)
    if isinstance(event, Variable) and event.name in SETTINGS and event.how != "env":
        return f"the setting of {event.name}"
    return ""


def _trains(program: LintedProgram) -> bool:
    """Return whether a program surely makes TensorFlow's devices; otherwise it may be a library."""
    return any("devices" in event.effects or "session" in event.effects for event in _run(program))


def _run(program: LintedProgram) -> Iterator[ProgramEvent]:
    return (event for event in program.events if not event.frame.uncalled and event.module is program.module)
