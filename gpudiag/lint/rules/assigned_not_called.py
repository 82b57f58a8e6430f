"""a function that sets an option is assigned to or only named, not called: the setting stays as it was

The settings of tf.config and tf.debugging are functions. An assignment replaces the function in its module and changes
no setting, and later calls of the function fail. There is no warning.

Bad
    import tensorflow as tf

    tf.config.set_soft_device_placement = False

Good
    import tensorflow as tf

    tf.config.set_soft_device_placement(False)
"""

from __future__ import annotations

import ast
import re

from gpudiag.fix import edit
from gpudiag.knowledge import tensorflow_api as api
from gpudiag.lint.program import Assigned, LintedProgram, Named
from gpudiag.lint.rule import Edit, Matches, Rule, Violation, between, insert_after
from gpudiag.model.report import Severity

RULE = Rule(
    message="{name} is {how}, not called: the setting stays as it was",
    severity=Severity.WARNING,
    fix=(edit("{call}", "call the function"),),
    words=(
        *("set_soft_device_placement", "set_log_device_placement", "set_memory_growth", "parallelism_threads"),
        *("set_visible_devices", "_device_configuration", "tensor_float_32_execution", "set_device_policy", "set_jit"),
    ),
    url="https://www.tensorflow.org/api_docs/python/tf/config",
)
_SETTINGS = re.compile(r"(?:config|debugging)\.(?:\w+\.)*(?:set_\w+|enable_\w+)\Z")
_DEVICES = {
    api.GROWTH: "for gpu in tf.config.list_physical_devices('GPU'): {name}(gpu, True)",
    api.VISIBLE: "{name}(devices, 'GPU')",
    api.LOGICAL: "{name}(gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=MIB)])",
}


def find(program: LintedProgram) -> Matches:
    for event in program.of(Assigned):
        name = api.canonical(event.name)
        if event.name.startswith("tensorflow.") and _SETTINGS.match(name):
            written = ast.unparse(event.target)
            call = _DEVICES.get(name, "{name}({value})")
            value = event.node.value if isinstance(event.node, ast.Assign) else event.target
            edits: tuple[Edit, ...] = ()
            if name in api.SETTERS and event.whole:
                edits = (*between(event.target, value, "("), insert_after(value, ")"))
            call = call.format(name=written, value=ast.unparse(value))
            yield Violation(event, {"name": written, "how": "assigned", "call": call}, edits=edits)
    for named in program.of(Named):
        if named.statement and named.name.startswith("tensorflow.") and _SETTINGS.match(api.canonical(named.name)):
            written = ast.unparse(named.node)
            yield Violation(named, {"name": written, "how": "named", "call": f"{written}(...)"})
