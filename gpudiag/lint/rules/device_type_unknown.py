"""a name of a device is none that TensorFlow knows

A device of TensorFlow is /CPU:0, /GPU:1 or /device:GPU:1. With /device:, any word is taken for a type, and if there is
no such device soft placement chooses another, silently. Without it, an unknown word raises ValueError.

The calls that list devices, or make them visible, compare their type letter by letter with CPU and GPU: of 'gpu' or
'GPU:0' the list is empty on every machine, and set_visible_devices([], 'gpu') hides nothing (2.21, simulated GPUs).
Without a type the list of set_visible_devices names all devices that stay visible, of every type, and TensorFlow ends
at the first operation: "No CPU devices are available in this process".

Bad
    import tensorflow as tf

    with tf.device("/device:CUDA:0"):
        x = tf.zeros([2, 2])

Good
    import tensorflow as tf

    with tf.device("/device:GPU:0"):
        x = tf.zeros([2, 2])
"""

from __future__ import annotations

import ast
import re

from gpudiag.fix import edit
from gpudiag.knowledge import tensorflow_api as api
from gpudiag.lint.program import LintedProgram
from gpudiag.lint.rule import Matches, Rule, Violation, insert_after, quoted, replace
from gpudiag.lint.settings import PLACING, device_names
from gpudiag.lint.values import Const, is_empty_list, of_gpus
from gpudiag.model.report import Severity

RULE = Rule(
    message="{what}: {happens}",
    severity=Severity.WARNING,
    fix=(edit("'/GPU:{index}'", "write this name instead"),),
    words=(
        *("tf.device(", "tf1.device(", "tensorflow.device(", "v1.device(", "Strategy("),
        *("list_physical_devices", "list_logical_devices", "visible_devices"),
    ),
    url="https://www.tensorflow.org/guide/gpu#overview",
    raises=("ValueError",),
)
_PART = re.compile(r"(?:job|replica|task):[\w*-]+\Z|(?P<long>device:)?(?P<type>\w+)(?::(?P<index>\d+|\*))?\Z", re.ASCII)


def find(program: LintedProgram) -> Matches:
    for event in program.calls(*PLACING):
        for name in device_names(event):
            if happens := _wrong(name):
                index = re.search(r"(?<!\d)\d+\Z", name)
                figures = {"what": f"{name!r} names no device of TensorFlow", "happens": happens}
                yield Violation(event, {**figures, "index": index[0] if index else 0})
    for event in program.calls(*api.LISTS, api.VISIBLE):
        kind = event.made.constant(1 if event.api == api.VISIBLE else 0, "device_type")
        if isinstance(kind, str) and kind not in api.DEVICE_TYPES and (right := api.device_type(kind)):
            places = [node for node in ast.walk(event.node) if isinstance(node, ast.Constant) and node.value == kind]
            edits = (replace(places[0], quoted(event, places[0], right)),) if len(places) == 1 else ()
            happens = "the list is empty on every machine"
            if event.api == api.VISIBLE:
                none = is_empty_list(event.made.argument(0, "devices"))
                happens = "nothing is hidden" if none else "ValueError is raised for any device of another type"
            yield Violation(
                event,
                {"what": f"{kind!r} names no device of TensorFlow", "happens": happens},
                fix=(edit(repr(right), "write this type instead"),),
                edits=edits,
            )
    yield from _without_type(program)


def _without_type(program: LintedProgram) -> Matches:
    for event in program.calls(api.VISIBLE):
        kind = event.made.argument(1, "device_type")
        if kind is not None and not (isinstance(kind, Const) and kind.value is None):
            continue
        value = event.made.argument(0, "devices")
        given = "GPUs" if of_gpus(value) else "an empty list" if is_empty_list(value) else ""
        if not given:
            continue
        node = event.made.node
        first = node.args[0] if node.args else node.keywords[0].value
        call = f"{ast.unparse(node.func)}({ast.unparse(first)}, 'GPU')"
        alone = len(node.args) + len(node.keywords) == 1
        after = ", 'GPU'" if node.args else ", device_type='GPU'"
        figures = {"what": f"set_visible_devices is given {given} without a type", "happens": "it hides the CPU, too"}
        edits = (insert_after(first, after),) if alone else ()
        yield Violation(event, figures, fix=(edit(call, "name the type"),), edits=edits, severity=Severity.FAIL)


def _wrong(name: str) -> str:
    """Return TensorFlow's reaction to a name that names no device; "" for a valid name."""
    for part in name.split("/"):
        if not part.partition(":")[0]:  # TensorFlow passes over it: 'gpu/:1' is GPU:0 (2.21)
            if part not in ("", ":0"):
                return f"its part {part!r} is not read"
            continue
        found = _PART.match(part)
        if found is None:
            return "it raises ValueError"
        if found["type"] and found["type"].upper() not in api.DEVICE_TYPES:
            return "operations run elsewhere, silently" if found["long"] else "it raises ValueError"
    return ""
