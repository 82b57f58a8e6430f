"""a logical device of a GPU needs memory_limit: without it TensorFlow raises ValueError

The text of the error is "Setting memory limit is required for GPU virtual devices".

Bad
    import tensorflow as tf

    gpu = tf.config.list_physical_devices("GPU")[0]
    tf.config.set_logical_device_configuration(gpu, [tf.config.LogicalDeviceConfiguration()] * 2)

Good
    import tensorflow as tf

    gpu = tf.config.list_physical_devices("GPU")[0]
    tf.config.set_logical_device_configuration(gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=1024)] * 2)
"""

from __future__ import annotations

from gpudiag.knowledge import tensorflow_api as api
from gpudiag.lint.program import Program
from gpudiag.lint.rule import Match, Matches, Rule
from gpudiag.lint.values import Const, Made, elements, of_gpus
from gpudiag.model.report import Severity

RULE = Rule(
    severity=Severity.FAIL,
    advice="tf.config.LogicalDeviceConfiguration(memory_limit=MIB)",
    words=("DeviceConfiguration(",),
    url="https://www.tensorflow.org/api_docs/python/tf/config/set_logical_device_configuration",
)


def find(program: Program) -> Matches:
    for event in program.calls(api.LOGICAL):
        if not of_gpus(event.made.argument(0, "device")):
            continue
        for value in elements(event.made.argument(1, "logical_devices")):
            if isinstance(value, Made) and value.api == api.LOGICAL_DEVICE:
                limit = value.argument(0, "memory_limit")
                if limit is None or (isinstance(limit, Const) and limit.value is None):
                    yield Match(event)
                    break
