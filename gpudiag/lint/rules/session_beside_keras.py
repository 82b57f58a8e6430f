"""device_count of this session hides no GPU from Keras: TensorFlow 2 trains eagerly, and not in a session

A session hides the GPUs from the graph that it runs. Keras models and eager operations have the devices of tf.config,
also inside of `with session.as_default()`: the weights are on GPU:0 (2.21, simulated GPUs). Memory is different: the
first session makes the pool of each GPU, and eager operations use it.

Bad
    import tensorflow as tf

    session = tf.compat.v1.Session(config=tf.compat.v1.ConfigProto(device_count={"GPU": 0}))
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile("adam", "mse")
    model.fit(x, y)

Good
    import tensorflow as tf

    tf.config.set_visible_devices([], "GPU")
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile("adam", "mse")
    model.fit(x, y)
"""

from __future__ import annotations

import re

from gpudiag.fix import edit
from gpudiag.lint.program import Program
from gpudiag.lint.rule import Match, Matches, Rule
from gpudiag.lint.settings import is_local, session_config
from gpudiag.lint.values import Const, Table
from gpudiag.model.report import Severity

RULE = Rule(
    severity=Severity.WARNING,
    fix=(edit("tf.config.set_visible_devices([], 'GPU')", "write it directly after import tensorflow"),),
    words=("device_count",),
    also=("compat.v1", "compat import v1"),
    url="https://www.tensorflow.org/api_docs/python/tf/config/set_visible_devices",
)
_RUNS_GRAPHS = re.compile(
    r"\.run\(|disable_eager_execution|disable_v2_behavior|Graph\(\)|set_session|TF_USE_LEGACY_KERAS"
)
_TRAINS = re.compile(r"\.(?:fit|predict)\(")
_OTHERWISE = re.compile(r"set_visible_devices|CUDA_VISIBLE_DEVICES")


def find(program: Program) -> Matches:
    keras = program.mentions(_TRAINS) and not program.mentions(_RUNS_GRAPHS)
    if not keras or program.mentions(_OTHERWISE):
        return
    for event in program.calls("Session"):
        config = session_config(event.made)
        counts = None if config is None else config.kwargs.get("device_count", config.options.get("device_count"))
        gpus = counts.get("GPU") if isinstance(counts, Table) else None
        if is_local(event.made) and isinstance(gpus, Const) and gpus.value == 0:
            yield Match(event)
