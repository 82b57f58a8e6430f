"""memory growth is set for one GPU alone: with several TensorFlow raises ValueError at the first operation

TensorFlow makes all visible GPUs, and growth must be the same for all of them ("Memory growth cannot differ between
GPU devices"). On a machine with one GPU the program works.

Bad
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    tf.config.experimental.set_memory_growth(gpus[0], True)

Good
    import tensorflow as tf

    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)
"""

from __future__ import annotations

import ast
import re

from gpudiag.knowledge import tensorflow_api as api
from gpudiag.lint.program import Call, Program
from gpudiag.lint.rule import Match, Matches, Rule
from gpudiag.lint.settings import GROWTH_FOR_EACH, MASK
from gpudiag.lint.values import Devices, devices
from gpudiag.model.report import Severity

RULE = Rule(
    severity=Severity.WARNING,
    fix=(GROWTH_FOR_EACH,),
    words=("set_memory_growth",),
    url="https://www.tensorflow.org/guide/gpu#limiting_gpu_memory_growth",
)
_ONE = re.compile(r"len\([^()]*\)\s*(?:==|<=)\s*1\b|len\([^()]*\)\s*<\s*2\b|\b1\s*==\s*len\(")
_RESTRICTED = re.compile(rf"{MASK}|set_visible_devices|visible_device_list")


def find(program: Program) -> Matches:
    if program.mentions(_RESTRICTED):
        return
    set_for: list[tuple[Call, Devices]] = []
    for event in program.calls(api.GROWTH):
        device = devices(event.made.argument(0, "device"))
        if device and event.made.constant(1, "enable") is not False and device.kind in ("GPU", None):
            set_for.append((event, device))
    indexes = {device.index for _, device in set_for if device.one}
    for_each = any(device.all and device.one for _, device in set_for)
    for event, device in set_for:
        if not device.one or device.all or device.listing.api == "config.list_logical_devices":
            continue
        if for_each or indexes - {device.index}:
            continue
        if not any(_ONE.search(ast.unparse(guard)) for guard in event.guards if isinstance(guard, ast.expr)):
            yield Match(event)
