"""an operation has no kernel for GPUs: it runs on the CPU, although tf.device says a GPU

Soft placement is on in TensorFlow 2: an operation without a kernel for the device that was asked for runs on the CPU,
its inputs are copied there, without a warning (2.21, simulated GPUs). tf.config.set_soft_device_placement(False) makes
it an error.

Bad
    import tensorflow as tf

    with tf.device("/GPU:0"):
        a = tf.constant([[1, 2], [3, 4]])
        b = tf.matmul(a, a)

Good
    import tensorflow as tf

    with tf.device("/GPU:0"):
        a = tf.constant([[1.0, 2.0], [3.0, 4.0]])
        b = tf.matmul(a, a)
"""

from __future__ import annotations

import re

from gpudiag.fix import edit_note
from gpudiag.knowledge import tensorflow_api as api
from gpudiag.lint.program import Call, LintedProgram
from gpudiag.lint.rule import Matches, Rule, Violation
from gpudiag.lint.settings import device_index
from gpudiag.lint.values import Const, Items, Made, Name, Value
from gpudiag.model.report import Severity

RULE = Rule(
    message="{name} has no kernel for GPUs{types}: it runs on the CPU, although tf.device says {device}",
    severity=Severity.WARNING,
    fix=(edit_note("{instead}"),),
    words=("tf.device(", "tf1.device(", "tensorflow.device(", "v1.device("),
    url="https://www.tensorflow.org/guide/gpu#manual_device_placement",
)
_HARD = re.compile(r"set_soft_device_placement\(\s*(?:enabled\s*=\s*)?False|device_count|jit_compile")
_WHOLE = ("int32", "int64")


def find(program: LintedProgram) -> Matches:
    if program.mentions(_HARD):
        return
    for event in program.of(Call):
        device = next((made for made in reversed(event.frame.contexts) if made.api == "device"), None)
        name = None if device is None else device.constant(0, "device_name")
        if device_index(name) is None or event.frame.graph:
            continue
        types = _types(event.made)
        if event.api in api.WITHOUT_GPU_KERNEL or _resizes(event.made):
            yield Violation(event, {"name": event.api, "types": "", "device": repr(name), "instead": _ELSE})
        elif types in _WHOLE:
            figures = {"name": event.api, "types": f" and {types}", "device": repr(name)}
            yield Violation(event, {**figures, "instead": "use float32, or float16: tf.cast(x, tf.float32)"})


_ELSE = "compute it where it runs, with tf.device('/CPU:0'), or choose an operation that GPUs have"
_PRODUCTS = frozenset({"matmul", "linalg.matmul", "einsum", "tensordot", "linalg.matvec"})


def _types(made: Made) -> str:
    """Return the integer type of a product's factors; "" if that is not known."""
    if made.api not in _PRODUCTS:
        return ""
    operands = made.args[1:] if made.api == "einsum" else made.args[:2]
    types = {_type(operand) for operand in operands}
    return types.pop() if len(types) == 1 else ""


def _type(value: Value | None) -> str:
    """Return the type of a tensor if the program states it, or ""."""
    if not isinstance(value, Made):
        return ""
    at = {"cast": 1, "constant": 1, "ones": 1, "zeros": 1, "fill": 9, "range": 9, "eye": 9, "random.uniform": 9}
    if value.api not in (*at, "convert_to_tensor", "Variable"):
        return ""
    given = value.argument(at.get(value.api, 9), "dtype")
    if isinstance(given, Name | Const):
        return given.path.rpartition(".")[2] if isinstance(given, Name) else str(given.value)
    if value.api in ("constant", "convert_to_tensor", "Variable"):
        content = value.argument(0, "value")
        return _type(content) if isinstance(content, Made) else "int32" if _is_whole(content) else ""
    return ""


def _is_whole(value: Value | None) -> bool:
    """Return whether all numbers of a constant are integers, so that TensorFlow makes it int32."""
    if isinstance(value, Items):
        return bool(value.items) and all(map(_is_whole, value.items))
    return isinstance(value, Const) and type(value.value) is int


_RESIZED = frozenset({"bicubic", "area", "lanczos3", "lanczos5", "gaussian", "mitchellcubic"})


def _resizes(made: Made) -> bool:
    """Return whether images are resized by a method that GPUs do not have."""
    return made.api == "image.resize" and made.constant(2, "method") in _RESIZED
