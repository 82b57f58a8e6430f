"""this ConfigProto is given to nothing: what it sets has no effect

A ConfigProto is a record. Its options hold for the session that is made with it, and for nothing else.

Bad
    import tensorflow as tf

    config = tf.compat.v1.ConfigProto()
    config.gpu_options.allow_growth = True
    model = tf.keras.Sequential()

Good
    import tensorflow as tf

    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)
    model = tf.keras.Sequential()
"""

from __future__ import annotations

import re

from gpudiag.lint.program import Program
from gpudiag.lint.rule import Match, Matches, Rule
from gpudiag.model.report import Severity

RULE = Rule(
    severity=Severity.WARNING,
    advice="give it to a session: tf.compat.v1.Session(config=config); without sessions use tf.config",
    words=("ConfigProto",),
    url="https://www.tensorflow.org/api_docs/python/tf/compat/v1/ConfigProto",
)


def find(program: Program) -> Matches:
    for made, event in program.made:
        if made.api != "ConfigProto" or made.used or (program.shared and (made.held or not event.functions)):
            continue
        if not made.held or not _is_read(program, made.held):
            yield Match(event)


def _is_read(program: Program, attribute: str) -> bool:
    """Return whether an attribute of an object is used, otherwise than to set an option of what it is."""
    use = re.compile(rf"\.{attribute}\b(?!\s{{0,9}}(?:\.\w[\w.]{{0,99}}\s{{0,9}})?=[^=])|__dict__|getattr\(|vars\(")
    return program.mentions(use)
