"""set_visible_devices ignores the order of its list: GPU:0 stays the first of the machine

TensorFlow numbers the visible GPUs in the order of the driver. get_visible_devices shows the order that was given,
although it has no effect.

Bad
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    tf.config.set_visible_devices([gpus[1], gpus[0]], "GPU")

Good
    import os

    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "1,0")
    import tensorflow as tf
"""

from __future__ import annotations

from gpudiag.fix import export
from gpudiag.knowledge import tensorflow_api as api
from gpudiag.lint.program import Program
from gpudiag.lint.rule import Match, Matches, Rule
from gpudiag.lint.values import devices, elements
from gpudiag.model.report import Severity

RULE = Rule(
    severity=Severity.WARNING,
    fix=(export("CUDA_VISIBLE_DEVICES", "{order}", "it keeps the order; set it before the first listing of devices"),),
    words=("set_visible_devices",),
    cause="gpus_in_another_order",
)


def find(program: Program) -> Matches:
    for event in program.calls(api.VISIBLE):
        found = [devices(value) for value in elements(event.made.argument(0, "devices"))]
        order = [device.index for device in found if device and device.index is not None and device.kind == "GPU"]
        if len(order) == len(found) and order != sorted(order):
            yield Match(event, {"order": ",".join(map(str, order))})
