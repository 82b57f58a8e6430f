"""{name} is beyond CUDA_VISIBLE_DEVICES={mask!r} of {place}: the GPUs that it shows are numbered from 0

The driver numbers what the mask shows again. With CUDA_VISIBLE_DEVICES=1 the only GPU is GPU:0, whatever its place in
the machine; what is put on GPU:1 runs elsewhere, and nothing is said.

Bad
    import os

    os.environ["CUDA_VISIBLE_DEVICES"] = "1"
    import tensorflow as tf

    with tf.device("/GPU:1"):
        x = tf.zeros([2, 2])

Good
    import os

    os.environ["CUDA_VISIBLE_DEVICES"] = "1"
    import tensorflow as tf

    with tf.device("/GPU:0"):
        x = tf.zeros([2, 2])
"""

from __future__ import annotations

from gpudiag.knowledge import tensorflow_api as api
from gpudiag.lint.program import Call, Program
from gpudiag.lint.rule import Match, Matches, Rule
from gpudiag.lint.settings import MASK, PLACING, device_index, device_names, entries, mask_before
from gpudiag.lint.values import Const, elements, of_gpus
from gpudiag.model.report import Severity

RULE = Rule(
    severity=Severity.WARNING,
    advice="use a number from 0 to {last}",
    words=(MASK,),
    cause="gpus_renumbered",
)


def find(program: Program) -> Matches:
    for event in program.calls(*PLACING, *api.DEVICE_SETTERS):
        mask = mask_before(event)
        shown = entries(mask.value) if mask is not None else None
        if not shown or mask is None or not isinstance(mask.value, Const):
            continue  # with no GPU at all the program is meant to run on the CPU
        for name, index in _indices(event):
            if index >= len(shown):
                figures = {"name": name, "mask": mask.value.value, "place": mask.place(program)}
                yield Match(event, {**figures, "last": len(shown) - 1})


def _indices(event: Call) -> list[tuple[str, int]]:
    if event.api in PLACING:
        return [(repr(name), index) for name in device_names(event) if (index := device_index(name)) is not None]
    found = [
        of_gpus(one) for one in elements(event.made.argument(0, "devices" if event.api == api.VISIBLE else "device"))
    ]
    return [(f"GPU {one.index}", one.index) for one in found if one and one.index is not None and one.index >= 0]
