"""the program asks for a GPU by a number that no GPU of TensorFlow has

TensorFlow counts the GPUs that CUDA shows it, from 0 and in the order of CUDA_VISIBLE_DEVICES: with
CUDA_VISIBLE_DEVICES=2,3 there are /GPU:0 and /GPU:1, and no /GPU:2. visible_device_list and /GPU:N take these
numbers, no UUIDs and not those of nvidia-smi. Without soft placement a number too high is refused; with it, the
operation runs on GPU:0, and it seems that the setting is ignored.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches, Program
from gpudiag.causes.shared.visibility import MASK, table
from gpudiag.fix import Kind, edit_note, note
from gpudiag.knowledge.messages.placement import DEVICE_NOT_SATISFIED, INDEX_NOT_VISIBLE, NO_DEVICE_FOR_SPEC
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.facts import Facts, Unknown
from gpudiag.model.report import Figure, Severity
from gpudiag.model.visibility import gpus_in_scope

CAUSE = Cause(
    title="the program asks for GPU {asked!r}, but TensorFlow has no GPU of that number: {table}",
    severity=Severity.WARNING,
    fix=(
        edit_note("use a number that TensorFlow has: {table}"),
        note(
            "or select the GPU outside the program by UUID: CUDA_VISIBLE_DEVICES=GPU-...; then use /GPU:0",
            kind=Kind.SET_VARIABLE,
        ),
    ),
    url="https://www.tensorflow.org/guide/gpu",
    unless={
        "plugin_devices_counted": "the numbers are those of the plug-in's devices",
    },
)


def find(facts: Facts, program: Program) -> Matches:
    gpus = len(gpus_in_scope(facts))
    for asked in program.all(INDEX_NOT_VISIBLE, DEVICE_NOT_SATISFIED, NO_DEVICE_FOR_SPEC):
        number = asked["number"]
        if not number or 0 < gpus <= int(number):  # if no GPU is seen, that is the cause, and not the number
            asked_for = number or asked["asked"]
            if isinstance(facts.environment, Unknown):
                numbers = "it counts those that it lists: tf.config.list_physical_devices('GPU')"
                listed = edit_note("use a number of those in tf.config.list_physical_devices('GPU')")
                figures: dict[str, Figure] = {"asked": asked_for, "table": numbers}
                yield Match((f"log: {asked.text}",), Confidence.LIKELY, figures, fix=(listed, CAUSE.fix[1]))
            else:
                mask = f"{MASK}={facts.variables.get(MASK, '(not set)')}"
                yield Match((f"log: {asked.text}", mask), figures={"asked": asked_for, "table": table(facts)})
            return
