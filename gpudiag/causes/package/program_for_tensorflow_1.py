"""the program was written for TensorFlow 1, but TensorFlow 2 is installed

TensorFlow 2 has the interfaces of TensorFlow 1 in tf.compat.v1, but for tf.contrib, which is gone. GPU options of a
session (ConfigProto, gpu_options) work there as before.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches, Program
from gpudiag.fix import Kind, edit, edit_note, note
from gpudiag.knowledge.messages.python_packages import NAME_OF_TENSORFLOW_1

CAUSE = Cause(
    title="the program was written for TensorFlow 1, but TensorFlow 2 is installed: it has no {name}",
    fix=(
        edit("import tensorflow.compat.v1 as tf; tf.disable_v2_behavior()", "replaces: import tensorflow as tf"),
        edit_note("tf.contrib is in no TensorFlow 2: tf_slim, tensorflow_addons, or a newer release of the program"),
        note("or TensorFlow 1.15 for GPUs of today: nvcr.io/nvidia/tensorflow:23.03-tf1-py3", kind=Kind.INSTALL),
    ),
    url="https://www.tensorflow.org/guide/migrate",
    needs_gpu=False,
)


def find(program: Program) -> Matches:
    if event := program.first(NAME_OF_TENSORFLOW_1):
        yield Match(program.said(NAME_OF_TENSORFLOW_1), figures={"name": event["module"] or f"tf.{event['name']}"})
