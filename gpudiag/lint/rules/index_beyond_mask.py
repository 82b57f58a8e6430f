"""{name} is beyond {shown} of {place}: the GPUs that are visible are numbered from 0

The driver numbers what CUDA_VISIBLE_DEVICES shows again, and TensorFlow what set_visible_devices shows. With one
visible GPU its name is GPU:0, whatever its place in the machine; what is put on GPU:1 runs elsewhere, and nothing is
said (2.21, two simulated GPUs).

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

import re

from gpudiag.knowledge import tensorflow_api as api
from gpudiag.lint.program import Call, Event, Program
from gpudiag.lint.rule import Match, Matches, Rule, change
from gpudiag.lint.settings import MASK, PLACING, device_index, device_names, entries, mask_before
from gpudiag.lint.values import Const, devices, elements, of_gpus
from gpudiag.model.report import Severity

RULE = Rule(
    severity=Severity.WARNING,
    fix=(change("use a number from 0 to {last}"),),
    words=(MASK, "set_visible_devices"),
    cause="gpus_renumbered",
)
_DIVIDED = re.compile(r"_device_configuration|virtual_devices")
"""Signs of logical devices, which have numbers of their own."""


def find(program: Program) -> Matches:
    divided = program.mentions(_DIVIDED)
    for event in program.calls(*PLACING, *api.DEVICE_SETTERS):
        used = _indices(event)
        limits = [_shown_by_mask(event)] if event.api in api.DEVICE_SETTERS else []
        if event.api in PLACING and not divided:
            limits = [_shown_by_mask(event), _shown_by_tensorflow(event)]
        for name, index in used:
            beyond = next((limit for limit in limits if limit is not None and index >= limit[0]), None)
            if beyond is not None:
                count, shown, by = beyond
                yield Match(event, {"name": name, "shown": shown, "place": by.place(program), "last": count - 1})


def _shown_by_mask(event: Event) -> tuple[int, str, Event] | None:
    """Return how many GPUs the mask shows, if it is known and not 0: a program without GPUs is meant for the CPU."""
    mask = mask_before(event)
    shown = entries(mask.value) if mask is not None else None
    if not shown or mask is None or not isinstance(mask.value, Const):
        return None
    return len(shown), f"{MASK}={mask.value.value!r}", mask


def _shown_by_tensorflow(event: Event) -> tuple[int, str, Event] | None:
    """Return how many GPUs set_visible_devices leaves visible, if that is known."""
    last = next((call for call in event.history() if isinstance(call, Call) and call.api == api.VISIBLE), None)
    given = [] if last is None else [devices(value) for value in elements(last.made.argument(0, "devices"))]
    if last is None or not given or not all(device and device.one and device.kind == "GPU" for device in given):
        return None
    if any(device is not None and device.all for device in given):
        return None  # of a loop over all of them
    return len(given), f"the {len(given)} of set_visible_devices", last


def _indices(event: Call) -> list[tuple[str, int]]:
    if event.api in PLACING:
        return [(repr(name), index) for name in device_names(event) if (index := device_index(name)) is not None]
    argument = "devices" if event.api == api.VISIBLE else "device"
    found = [of_gpus(value) for value in elements(event.made.argument(0, argument))]
    return [(f"GPU {gpu.index}", gpu.index) for gpu in found if gpu and gpu.index is not None and gpu.index >= 0]
