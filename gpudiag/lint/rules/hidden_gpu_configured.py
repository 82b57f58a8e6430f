"""{name} is set for GPU {index}, which {place} hides: the GPU that is used keeps the default

set_visible_devices takes the other GPUs out of the process. Memory growth and logical devices of a hidden GPU are
accepted, and the visible GPU is taken as a whole (2.21, two simulated GPUs).

Bad
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    tf.config.set_visible_devices(gpus[1], "GPU")
    tf.config.experimental.set_memory_growth(gpus[0], True)

Good
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    tf.config.set_visible_devices(gpus[1], "GPU")
    tf.config.experimental.set_memory_growth(gpus[1], True)
"""

from __future__ import annotations

from gpudiag.knowledge import tensorflow_api as api
from gpudiag.lint.program import Call, Program
from gpudiag.lint.rule import Match, Matches, Rule, change
from gpudiag.lint.values import devices, elements
from gpudiag.model.report import Severity

RULE = Rule(
    severity=Severity.WARNING,
    fix=(change("configure the GPU that is visible: {shown}"),),
    words=("set_visible_devices",),
    also=("set_memory_growth", "_device_configuration"),
    url="https://www.tensorflow.org/guide/gpu#limiting_gpu_memory_growth",
)


def find(program: Program) -> Matches:
    last = next(iter([*program.calls(api.VISIBLE)][-1:]), None)
    visible = set() if last is None else _indices(last, "devices")
    if last is None or not visible or None in visible or last.frame.doubtful:
        return
    for name in (api.GROWTH, api.LOGICAL):
        calls = [(event, _indices(event, "device")) for event in program.calls(name)]
        if any(None in indices or indices & visible for _, indices in calls):
            continue  # the visible one is configured, too
        for event, indices in calls:
            for index in sorted(index for index in indices if index is not None):
                shown = ", ".join(
                    f"GPU {number}" for number in sorted(number for number in visible if number is not None)
                )
                figures = {"name": name.rpartition(".")[2], "index": index, "place": last.place(program)}
                yield Match(event, {**figures, "shown": shown})


def _indices(event: Call, argument: str) -> set[int | None]:
    """Return the numbers of the GPUs that a call is given; None for an unknown one."""
    found = [devices(value) for value in elements(event.made.argument(0, argument))]
    return {gpu.index if gpu is not None and gpu.kind == "GPU" and gpu.index != -1 else None for gpu in found}
