"""{name}={value} is {tib} TiB: the unit of {name} is MiB, not bytes

With more than the GPU has, the limit limits nothing, and TensorFlow fails where it takes the memory.

Bad
    import tensorflow as tf

    for gpu in tf.config.list_physical_devices("GPU"):
        limit = tf.config.LogicalDeviceConfiguration(memory_limit=4 * 1024**3)
        tf.config.set_logical_device_configuration(gpu, [limit])

Good
    import tensorflow as tf

    for gpu in tf.config.list_physical_devices("GPU"):
        limit = tf.config.LogicalDeviceConfiguration(memory_limit=4 * 1024)
        tf.config.set_logical_device_configuration(gpu, [limit])
"""

from __future__ import annotations

from gpudiag.knowledge import tensorflow_api as api
from gpudiag.lint.program import Call, Program
from gpudiag.lint.rule import Match, Matches, Rule
from gpudiag.lint.values import constants
from gpudiag.model.report import Severity

RULE = Rule(
    severity=Severity.WARNING,
    advice="write {mib}",
    words=("memory_limit",),
    url="https://www.tensorflow.org/api_docs/python/tf/config/LogicalDeviceConfiguration",
    cause="more_than_the_limit",
)
_MOST = 1_000_000
"""MiB: about 1 TiB, more than any GPU has."""
_VIRTUAL = ("virtual_devices.add", "GPUOptions.Experimental.VirtualDevices")
"""Calls that divide the GPU of a session, by limits with the same unit."""


def find(program: Program) -> Matches:
    for event in program.of(Call):
        divides = event.api.endswith(_VIRTUAL)
        if not divides and event.api != api.LOGICAL_DEVICE:
            continue
        name = "memory_limit_mb" if divides else "memory_limit"
        given = event.made.argument(0, name)
        value = max((constant for constant in constants(given) if isinstance(constant, int | float)), default=0)
        if value >= _MOST:
            figures = {"value": f"{value:.0f}", "tib": f"{value / (1 << 20):.0f}", "mib": max(int(value) >> 20, 1)}
            yield Match(event, {**figures, "name": name})
