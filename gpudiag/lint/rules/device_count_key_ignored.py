"""device_count has the key {key!r}, which is ignored: the types of devices are CPU and GPU, in upper case

TensorFlow looks for the exact names of the types. {'gpu': 0}, {'GPU:0': 0}, {'/GPU:0': 0}, {'gpus': 0} and {'cuda': 0}
hide no GPU, and nothing is said (2.21, simulated GPUs).

Bad
    import tensorflow.compat.v1 as tf

    config = tf.ConfigProto(device_count={"gpu": 0})
    session = tf.Session(config=config)

Good
    import tensorflow.compat.v1 as tf

    config = tf.ConfigProto(device_count={"GPU": 0})
    session = tf.Session(config=config)
"""

from __future__ import annotations

import ast

from gpudiag.knowledge import tensorflow_api as api
from gpudiag.lint.program import Call, Option, Program
from gpudiag.lint.rule import Match, Matches, Rule, quoted, replace
from gpudiag.lint.settings import table_keys
from gpudiag.model.report import Severity

RULE = Rule(
    severity=Severity.WARNING,
    advice="write {right!r}",
    words=("device_count",),
    url="https://www.tensorflow.org/api_docs/python/tf/compat/v1/ConfigProto",
)


def find(program: Program) -> Matches:
    for event in program.events:
        if isinstance(event, Call) and event.api == "ConfigProto":
            keys = table_keys(event.made.argument(0, "device_count"))
        elif isinstance(event, Option) and event.path == "device_count":
            keys = table_keys(event.value)
        else:
            continue
        for key in keys:
            if isinstance(key, str) and key not in api.DEVICE_COUNT_KEYS and (right := api.device_type(key)):
                places = [node for node in ast.walk(event.node) if isinstance(node, ast.Constant) and node.value == key]
                edits = (replace(places[0], quoted(event, places[0], right)),) if len(places) == 1 else ()
                yield Match(event, {"key": key, "right": right}, node=places[0] if places else None, edits=edits)
