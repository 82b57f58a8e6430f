"""the program was written for TensorFlow 1, but TensorFlow 2 is installed: it has no {name}

TensorFlow 2 has the interfaces of TensorFlow 1 in tf.compat.v1, but for tf.contrib, which is gone. GPU options of a
session (ConfigProto, gpu_options) work there as before.
"""

from __future__ import annotations

import re

from gpudiag.cause import Cause, Match, Matches, Program
from gpudiag.knowledge.log_lines import text
from gpudiag.knowledge.message import Event
from gpudiag.knowledge.messages.python_packages import NAME_NOT_THERE, NAME_OF_TENSORFLOW_1
from gpudiag.knowledge.tensorflow_1 import NAMES

CAUSE = Cause(
    fix=(
        "import tensorflow.compat.v1 as tf; tf.disable_v2_behavior()  # in place of: import tensorflow as tf",
        "# tf.contrib is in no TensorFlow 2: tf_slim, tensorflow_addons, or a newer release of the program",
        "# or TensorFlow 1.15 for GPUs of today: nvcr.io/nvidia/tensorflow:23.03-tf1-py3",
    ),
    url="https://www.tensorflow.org/guide/migrate",
    needs_gpu=False,
)


def find(program: Program) -> Matches:
    if said := program.first(NAME_OF_TENSORFLOW_1):
        name = said["module"] or f"tf.{said['name']}"
        yield Match(program.said(NAME_OF_TENSORFLOW_1), figures={"name": name})
        return
    for event in program.all(NAME_NOT_THERE):
        if (name := _asked_for(event)) in NAMES:
            yield Match((text(event.line),), figures={"name": f"tf.{name}"})
            return


def _asked_for(event: Event) -> str:
    """Return the name of TensorFlow's that is not there, such as ``train.AdamOptimizer``; "" for another package's."""
    module = event["of"] or event["module"]
    if module.partition(".")[0] != "tensorflow":
        return ""
    inside = re.sub(r"^tensorflow(?:\._api\.v2(?:\.compat\.v2)?)?\.?", "", module)
    # TensorFlow 2 calls it tensorflow._api.v2.compat.v2; tensorflow.compat.v2 is that of 1.13 to 1.15.
    return ".".join(filter(None, [inside, event["attribute"] or event["name"]]))
