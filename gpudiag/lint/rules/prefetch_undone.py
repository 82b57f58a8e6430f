"""{step} comes after {copy} of {place}: its results are on the CPU, and the copy to the GPU is lost

Steps of a tf.data pipeline run on the CPU, whatever came before. Only prefetch() keeps what prefetch_to_device has
copied; after map, batch or repeat the elements are in the host's memory again (2.21, simulated GPUs).

Bad
    import tensorflow as tf

    data = tf.data.Dataset.range(64).apply(tf.data.experimental.prefetch_to_device("/GPU:0"))
    data = data.batch(8)

Good
    import tensorflow as tf

    data = tf.data.Dataset.range(64).batch(8)
    data = data.apply(tf.data.experimental.prefetch_to_device("/GPU:0"))
"""

from __future__ import annotations

from gpudiag.lint.program import Call, Program
from gpudiag.lint.rule import Match, Matches, Rule, change
from gpudiag.lint.values import Made, Value
from gpudiag.model.report import Severity

_COPIES = ("data.experimental.prefetch_to_device", "data.experimental.copy_to_device")
RULE = Rule(
    severity=Severity.WARNING,
    fix=(change("make {copy} the last step"),),
    words=("prefetch_to_device", "copy_to_device"),
    url="https://www.tensorflow.org/api_docs/python/tf/data/experimental/prefetch_to_device",
)
_ON_THE_CPU = frozenset({"map", "batch", "repeat"})


def find(program: Program) -> Matches:
    events = {id(event.made): event for event in program.of(Call)}
    for event in program.of(Call):
        step = event.made.name.rpartition("().")[2]
        applied = event.made.owner
        copy = _copy(applied) if step in _ON_THE_CPU else None
        if copy is not None and id(applied) in events:
            name = copy.api.rpartition(".")[2]
            yield Match(event, {"step": f"{step}()", "copy": name, "place": events[id(applied)].place(program)})


def _copy(value: Value | None) -> Made | None:
    """Return the copy to a device that ``dataset.apply`` was given, or None."""
    if not isinstance(value, Made) or not value.name.endswith("().apply"):
        return None
    given = value.argument(0, "transformation_func")
    return given if isinstance(given, Made) and given.api in _COPIES else None
