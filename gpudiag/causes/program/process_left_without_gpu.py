"""{count} of {all} processes that were each given GPUs made none: it computes on the CPU

The program gave each process a GPU of its own by CUDA_VISIBLE_DEVICES, and the process chose among those that it sees
once more, by a number that counts all GPUs of the machine: that leaves none.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.fix import edit, note
from gpudiag.model.program import ProgramTrace, place
from gpudiag.model.report import Severity

CAUSE = Cause(
    severity=Severity.WARNING,
    fix=(
        edit("tf.config.list_physical_devices('GPU')[:1]", "the GPU that the mask leaves is always the first"),
        note("or let each process see all GPUs, and choose by tf.config alone"),
    ),
    url="https://www.tensorflow.org/guide/gpu",
    needs_gpu=False,
)


def find(program: ProgramTrace) -> Matches:
    given = [process for process in program.processes if process.mask and process.mask[0] != "-" and process.devices]
    without = [process for process in given if not process.gpus and process.operations]
    chosen = [
        (process, setting)
        for process in without
        for setting in program.settings
        if setting.process == process.pid and setting.what == "visible_devices" and setting.value.endswith("[]")
    ]
    if chosen and len({process.mask for process in given}) > 1:
        yield Match(
            evidence=tuple(
                f"process {process.pid}: CUDA_VISIBLE_DEVICES={process.mask!r}, and {place(setting.line)} makes "
                f"{setting.value.rpartition('=')[2]} of it visible"
                for process, setting in chosen
            ),
            figures={"count": len(chosen), "all": len(given)},
        )
