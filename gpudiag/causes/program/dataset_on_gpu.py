"""tf.data runs on the CPU: tf.device around a dataset does not move it

A dataset, and all functions that it maps, run on the CPU in threads of tf.data. TensorFlow has no GPU kernels for them,
and soft placement gives no warning. Code that the GPU should run belongs after the dataset.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.fix import edit_note
from gpudiag.model.program import ProgramTrace, place
from gpudiag.model.report import Severity
from gpudiag.text import counted

CAUSE = Cause(
    title="tf.data runs on the CPU: tf.device({device!r}) around {where} does not move it",
    severity=Severity.NOTE,
    fix=(
        edit_note("compute it after the dataset, in the training step or in a layer of the model"),
        edit_note("dataset.prefetch(tf.data.AUTOTUNE) lets the dataset work while the GPU does"),
    ),
    url="https://www.tensorflow.org/guide/data_performance",
    needs_gpu=False,
    symptom=True,
)
_WITH_FUNCTION = (
    "MapDataset",
    "ParallelMapDataset",
    "FilterDataset",
    "InterleaveDataset",
    "BatchAndMap",
    "MapAndBatch",
)


def find(program: ProgramTrace) -> Matches:
    for placed in program.placed:
        if (
            "GPU" in placed.asked
            and placed.direct
            and placed.line
            and any(name in placed.op for name in _WITH_FUNCTION)
        ):
            yield Match(
                evidence=(f"{place(placed.line)}: {placed.op} on {placed.device}, {counted(placed.count, 'time')}",),
                figures={"device": placed.asked, "where": place(placed.line)},
            )
            return
