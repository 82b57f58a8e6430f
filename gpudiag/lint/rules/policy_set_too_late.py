"""a policy of Keras is set after layers were made: they stay as they are, float32

A layer takes the policy when it is made. Setting another one later changes no layer that exists (Keras 3.15, measured:
compute_dtype stays float32), without a warning.

Bad
    import tensorflow as tf

    model = tf.keras.Sequential([tf.keras.layers.Dense(8), tf.keras.layers.Dense(1)])
    tf.keras.mixed_precision.set_global_policy("mixed_float16")
    model.compile("adam", "mse")

Good
    import tensorflow as tf

    tf.keras.mixed_precision.set_global_policy("mixed_float16")
    model = tf.keras.Sequential([tf.keras.layers.Dense(8), tf.keras.layers.Dense(1, dtype="float32")])
    model.compile("adam", "mse")
"""

from __future__ import annotations

import re

from gpudiag.fix import edit_note
from gpudiag.lint.program import Call, LintedProgram, ProgramEvent
from gpudiag.lint.rule import Matches, Rule, Violation
from gpudiag.lint.values import Const, Made, Value
from gpudiag.model.report import Severity

RULE = Rule(
    message="the policy {policy!r} is set after the layers of {place} were made: they stay as they are, float32",
    severity=Severity.WARNING,
    fix=(edit_note("set it directly after import tensorflow, before the first layer"),),
    words=("set_global_policy", "set_dtype_policy", "set_policy"),
    url="https://www.tensorflow.org/guide/mixed_precision",
)
_SETS = re.compile(
    r"keras\.(?:mixed_precision|config)\.(?:experimental\.)?(?:set_global_policy|set_dtype_policy|set_policy)\Z"
)
_LAYER = re.compile(r"keras\.(?:layers\.(?!Input|experimental)[A-Z]\w+|applications\.(?:\w{1,99}\.){0,3}[A-Z]\w+)\Z")


def find(program: LintedProgram) -> Matches:
    layers = [event for event in program.of(Call) if _LAYER.search(event.api)]
    for event in program.of(Call):
        policy = _name(event.made.argument(0, "policy"))
        if not _SETS.search(event.api) or not policy.startswith("mixed_") or event.module is not program.module:
            continue  # a function of a library may be called again, for other layers
        before = [earlier for earlier in event.history() if isinstance(earlier, Call) and _LAYER.search(earlier.api)]
        if before and not _follow(layers, event, program):
            yield Violation(event, {"policy": policy, "place": before[-1].place(program)})


def _follow(layers: list[Call], event: ProgramEvent, program: LintedProgram) -> bool:
    """Return whether layers may be made after an event; the policy holds for them."""
    at = program.events.index(event)
    return any(program.events.index(layer) > at for layer in layers)


def _name(value: Value | None) -> str:
    """Return the name of a policy that is given as a name or as a ``Policy``."""
    if isinstance(value, Made) and value.name.endswith("Policy"):
        value = value.argument(0, "name")
    return value.value if isinstance(value, Const) and isinstance(value.value, str) else ""
