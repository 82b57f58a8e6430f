"""enable_eager_execution ignores its config: TensorFlow 2 is in eager mode already

The function does something only while eager execution is off. Memory growth, fractions and soft placement that are in
config are not set, without a warning.

Bad
    import tensorflow as tf

    config = tf.compat.v1.ConfigProto()
    config.gpu_options.allow_growth = True
    tf.compat.v1.enable_eager_execution(config=config)

Good
    import tensorflow as tf

    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)
"""

from __future__ import annotations

from gpudiag.knowledge import tensorflow_api as api
from gpudiag.lint.program import Call, Program
from gpudiag.lint.rule import Match, Matches, Rule, change
from gpudiag.lint.settings import asks_for_version
from gpudiag.model.report import Severity

RULE = Rule(
    severity=Severity.WARNING,
    fix=(change("use tf.config: set_memory_growth for each GPU, set_logical_device_configuration"),),
    words=("enable_eager_execution",),
)


def find(program: Program) -> Matches:
    for event in program.calls("enable_eager_execution"):
        if "compat.v1" not in event.made.name or event.made.argument(0, "config") is None:
            continue
        if any(map(asks_for_version, event.guards)):
            continue
        switched_off = any(isinstance(call, Call) and call.api in api.WITHOUT_EAGER for call in event.history())
        if not switched_off:
            yield Match(event)
