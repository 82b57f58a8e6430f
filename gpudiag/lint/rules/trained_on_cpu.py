"""a model is trained inside of a scope of the CPU

Variables and operations that are made in a device scope are on that device, and so is what fit() runs (2.21, simulated
GPUs). Old examples made a model on the CPU and let multi_gpu_model() copy it to the GPUs; fit() stood outside.

The functions of tf.data run on the CPU, whatever device is asked for: a network that Dataset.map calls does, too (2.21,
simulated GPUs: 48 of 48 convolutions).

Bad
    import tensorflow as tf

    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)
    with tf.device("/cpu:0"):
        model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
        model.compile("adam", "mse")
        model.fit(x, y)

Good
    import tensorflow as tf

    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile("adam", "mse")
    model.fit(x, y)
"""

from __future__ import annotations

import ast
import re

from gpudiag.fix import edit_note
from gpudiag.lint.program import Call, Entered, LintedProgram
from gpudiag.lint.rule import Matches, Rule, Violation
from gpudiag.lint.settings import is_of_tests
from gpudiag.lint.values import Made, has_weights
from gpudiag.model.report import Severity

RULE = Rule(
    message="{call} in {place} is inside of {where}: the model runs on the CPU",
    severity=Severity.WARNING,
    fix=(edit_note("take it out of {where}"),),
    words=("tf.device(", "tf1.device(", "tensorflow.device(", "v1.device(", ".map("),
    url="https://www.tensorflow.org/guide/gpu#manual_device_placement",
)
_CPU = re.compile(r"/?(?:device:)?cpu(?::\d+)?\Z", re.IGNORECASE)
_WANTS_GPU = re.compile(
    r"(?:train|fit|run)\w{0,9}\s{1,9}(?:it\s{1,9})?on\s{1,9}(?:the\s{1,9})?GPU|multi_gpu|set_memory_growth|_device_configuration|"
    r"TF_FORCE_GPU_ALLOW_GROWTH|MirroredStrategy",
    re.IGNORECASE,
)
"""Signs that a program wants a GPU; without them it may be meant for the CPU."""
_ALSO_ON_GPU = re.compile(r"device\(\s*f?['\"]/?(?:device:)?gpu|set_visible_devices\(\s*\[\s*\]", re.IGNORECASE)
"""Signs of code that compares CPU and GPU, or hides the GPUs."""


def find(program: LintedProgram) -> Matches:
    for event in program.events:
        if not isinstance(event, Call | Entered) or not event.frame.contexts:
            continue
        innermost = event.frame.contexts[-1]
        computes = event.made.api.endswith(("().__call__", "().predict")) and has_weights(event.made.owner)
        if computes and innermost.api.endswith(_IN_PIPELINE) and not program.mentions(_COPIES):
            yield Violation(event, {"call": event.what, "place": event.place(program), "where": _pipeline(innermost)})
        device = next((made for made in reversed(event.frame.contexts) if made.api == "device"), None)
        name = None if device is None else device.constant(0, "device_name")
        trains = event.made.name.endswith(("().fit", "().train_on_batch", "GradientTape"))
        on_cpu = isinstance(name, str) and _CPU.match(name) is not None
        if trains and on_cpu and _is_meant_for_gpus(program) and isinstance(event.node, ast.Call):
            scope = next((entered for entered in program.of(Entered) if entered.made is device), event)
            figures = {"call": f"{ast.unparse(event.node.func)}()", "place": event.place(program)}
            yield Violation(scope, {**figures, "where": f"tf.device({name!r})"})


_IN_PIPELINE = ("().map", "().filter", "().flat_map", "().interleave")
_COPIES = re.compile(r"(?:copy|prefetch)_to_device")
"""Signs of a pipeline with a part on a GPU."""


def _pipeline(made: Made) -> str:
    return f"Dataset.{made.api.rpartition('.')[2]}"


def _is_meant_for_gpus(program: LintedProgram) -> bool:
    return program.mentions(_WANTS_GPU) and not program.mentions(_ALSO_ON_GPU) and not is_of_tests(program)
