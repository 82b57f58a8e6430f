"""hvd.init() is called, and no GPU is chosen by hvd.local_rank(): every rank of a machine uses GPU 0

Horovod starts a process for each GPU and leaves it to the program to choose one. Without that all ranks make their
variables on the first GPU, and its memory runs out while the others are idle.

Bad
    import horovod.tensorflow.keras as hvd
    import tensorflow as tf

    hvd.init()
    model = tf.keras.Sequential()

Good
    import horovod.tensorflow.keras as hvd
    import tensorflow as tf

    hvd.init()
    gpus = tf.config.list_physical_devices("GPU")
    tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
    model = tf.keras.Sequential()
"""

from __future__ import annotations

import re

from gpudiag.fix import edit
from gpudiag.lint.program import Call, Program
from gpudiag.lint.rule import Match, Matches, Rule
from gpudiag.lint.settings import is_of_tests
from gpudiag.model.report import Severity

RULE = Rule(
    severity=Severity.NOTE,
    fix=(edit("tf.config.set_visible_devices(gpus[hvd.local_rank()], 'GPU')", "choose one after hvd.init()"),),
    words=("horovod",),
    also=("init(",),
    url="https://horovod.readthedocs.io/en/stable/tensorflow.html",
    cause="workers_share_gpus",
)
_CHOSEN = re.compile(r"local_rank|CUDA_VISIBLE_DEVICES|visible_device_list|set_visible_devices|LOCAL_RANK|sys\.path\b")
"""Signs that the program chooses a GPU, or imports modules that are not read and may choose one."""


def find(program: Program) -> Matches:
    if program.mentions(_CHOSEN) or is_of_tests(program):
        return  # a test is one process
    for event in program.of(Call):
        if program.shared and event.functions and not event.stack:
            continue  # a helper of other files, which may choose the GPU
        if re.fullmatch(r"horovod\.(?:tensorflow|keras)(?:\.\w+)*\.init", event.made.name):
            yield Match(event)
