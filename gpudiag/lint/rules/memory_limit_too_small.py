"""memory_limit={value} is {value} MiB: the unit is MiB, {unit}

A logical device with 8 MiB holds two million numbers of float32, and a larger tensor ends with ResourceExhaustedError.
With 0.5 the first operation fails: "Failed to allocate scratch buffer for device 0" (2.21, simulated GPUs).

Bad
    import tensorflow as tf

    gpu = tf.config.list_physical_devices("GPU")[0]
    tf.config.set_logical_device_configuration(gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=8)])

Good
    import tensorflow as tf

    gpu = tf.config.list_physical_devices("GPU")[0]
    tf.config.set_logical_device_configuration(gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=8 * 1024)])
"""

from __future__ import annotations

from gpudiag.knowledge import tensorflow_api as api
from gpudiag.lint.program import Program
from gpudiag.lint.rule import Match, Matches, Rule
from gpudiag.lint.settings import is_of_tests
from gpudiag.lint.values import Const
from gpudiag.model.report import Severity

RULE = Rule(
    severity=Severity.WARNING,
    advice="write {mib}",
    words=("memory_limit",),
    url="https://www.tensorflow.org/api_docs/python/tf/config/LogicalDeviceConfiguration",
)
_SMALLEST = 32
"""MiB: below it nothing that is trained or served has room."""


def find(program: Program) -> Matches:
    if is_of_tests(program):
        return
    for event in program.calls(api.LOGICAL_DEVICE):
        limit = event.made.argument(0, "memory_limit")
        value = limit.value if isinstance(limit, Const) else None
        if isinstance(value, int | float) and 0 < value <= _SMALLEST and not isinstance(value, bool):
            fraction = value <= 1
            unit = "not a part of the GPU's memory" if fraction else "not GiB"
            mib = "a number of MiB, such as 4096" if fraction else f"{value:g} * 1024"
            yield Match(event, {"value": f"{value:g}", "unit": unit, "mib": mib})
