"""the limits of a GPU's logical devices add up to more memory than it has

Each logical device may take its limit, and TensorFlow takes it whole at the first use: the last one finds too little.
The memory of the GPU is what --gpu-memory says; without it this rule looks at nothing.

Bad
    # gpudiag lint --gpu-memory 8GiB
    import tensorflow as tf

    gpu = tf.config.list_physical_devices("GPU")[0]
    half = tf.config.LogicalDeviceConfiguration(memory_limit=5000)
    tf.config.set_logical_device_configuration(gpu, [half, half])

Good
    # gpudiag lint --gpu-memory 8GiB
    import tensorflow as tf

    gpu = tf.config.list_physical_devices("GPU")[0]
    half = tf.config.LogicalDeviceConfiguration(memory_limit=3000)
    tf.config.set_logical_device_configuration(gpu, [half, half])
"""

from __future__ import annotations

from gpudiag.fix import edit_note
from gpudiag.knowledge import tensorflow_api as api
from gpudiag.lint.program import LintedProgram
from gpudiag.lint.rule import Matches, Rule, Violation
from gpudiag.lint.values import Made, elements
from gpudiag.model.report import Severity

RULE = Rule(
    message="the limits of this GPU's logical devices add up to {total} MiB, and it has {have} MiB",
    severity=Severity.WARNING,
    fix=(edit_note("lower the limits; TensorFlow needs about 1.5 GiB of the GPU beside them"),),
    words=("memory_limit",),
    url="https://www.tensorflow.org/api_docs/python/tf/config/LogicalDeviceConfiguration",
    cause="more_than_the_limit",
)


def find(program: LintedProgram) -> Matches:
    if program.gpu_bytes is None:
        return
    have = program.gpu_bytes >> 20
    for event in program.calls(api.LOGICAL):
        made = [value for value in elements(event.made.argument(1, "logical_devices")) if isinstance(value, Made)]
        limits = [value.constant(0, "memory_limit") for value in made if value.api == api.LOGICAL_DEVICE]
        total = sum(limit for limit in limits if isinstance(limit, int | float))
        if total > have:
            yield Violation(event, {"total": f"{total:.0f}", "have": have})
