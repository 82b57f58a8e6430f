"""{name} is used, and nothing asks how many GPUs there are: with fewer it runs elsewhere, silently

Soft placement is on in TensorFlow 2: an operation for a GPU that is not there runs on another device, and replicas of
MirroredStrategy share one. On a machine with one GPU the program does not do what its text says, and there is no
warning.

Bad
    import tensorflow as tf

    with tf.device("/GPU:1"):
        x = tf.zeros([2, 2])

Good
    import tensorflow as tf

    gpus = tf.config.list_logical_devices("GPU")
    with tf.device(gpus[-1].name):
        x = tf.zeros([2, 2])
"""

from __future__ import annotations

import re

from gpudiag.fix import Role, edit
from gpudiag.lint.program import Program
from gpudiag.lint.rule import Match, Matches, Rule
from gpudiag.lint.settings import PLACING, device_index, device_names
from gpudiag.model.report import Severity

RULE = Rule(
    severity=Severity.NOTE,
    fix=(
        edit("tf.config.set_soft_device_placement(False)", "it raises if the GPU is missing"),
        edit("len(tf.config.list_physical_devices('GPU'))", "ask how many there are", role=Role.ALTERNATIVE),
    ),
    words=("gpu:", "GPU:"),
    also=tuple(f"{kind}:{number}" for kind in ("gpu", "GPU") for number in range(1, 10)),
    url="https://www.tensorflow.org/guide/gpu#manual_device_placement",
    cause="cpu_instead_of_gpu",
)
_COUNTED = re.compile(
    r"list_(?:physical|logical|local)_devices|get_visible_devices|is_gpu_available|num_gpus|n_gpus?\b|ngpus?\b|gpu_count|"
    r"device_count|set_soft_device_placement|allow_soft_placement\s*=\s*False|set_(?:logical|virtual)_device|"
    r"experimental_list_devices|pynvml|GPUtil|nvidia-smi|_get_available_gpus|CUDA_VISIBLE_DEVICES"
)


def find(program: Program) -> Matches:
    if program.mentions(_COUNTED):
        return
    used = {device_index(name) for event in program.calls(*PLACING) for name in device_names(event)} - {None}
    if used == set(range(len(used))):
        return  # it is written for so many GPUs
    for event in program.calls(*PLACING):
        beyond = [name for name in device_names(event) if (device_index(name) or 0) > 0]
        if beyond:
            yield Match(event, {"name": repr(beyond[0])})
