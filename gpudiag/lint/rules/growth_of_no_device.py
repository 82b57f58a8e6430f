"""set_memory_growth takes one physical device, and is given {given}: it raises ValueError

The text of the error is "Unrecognized device", for the CPU "Cannot set memory growth on non-GPU and non-Pluggable
devices" (2.21). list_physical_devices() without a type begins with the CPU. Inside of try and except the error is often
not seen, and TensorFlow takes the memory of every GPU whole.

Bad
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    tf.config.experimental.set_memory_growth(gpus, True)

Good
    import tensorflow as tf

    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)
"""

from __future__ import annotations

import re

from gpudiag.knowledge import tensorflow_api as api
from gpudiag.lint.program import Program
from gpudiag.lint.rule import Match, Matches, Rule
from gpudiag.lint.settings import GROWTH_FOR_EACH
from gpudiag.lint.values import Const, devices
from gpudiag.model.report import Severity

RULE = Rule(
    severity=Severity.FAIL,
    fix=(GROWTH_FOR_EACH,),
    words=("set_memory_growth",),
    url="https://www.tensorflow.org/api_docs/python/tf/config/experimental/set_memory_growth",
)

_SORTED = re.compile(r"device_type|[\"']GPU[\"']\s*(?:in\b|==)|\.name\b[^\n]{0,80}(?:GPU|gpu)")
"""Signs of code that checks the type of each device."""


def find(program: Program) -> Matches:
    for event in program.calls(api.GROWTH):
        value = event.made.argument(0, "device")
        device = devices(value)
        given = ""
        if isinstance(value, Const):
            given = repr(value.value)
        elif device and not device.one:
            given = "a list"
        elif device and device.listing.api == "config.list_logical_devices":
            given = "a logical device"
        elif device and device.kind == "CPU":
            given = "the CPU"
        elif device and device.kind is None and device.all and not event.module.mentions(_SORTED):
            given = "every device, first of all the CPU"
        if given:
            yield Match(event, {"given": given})
