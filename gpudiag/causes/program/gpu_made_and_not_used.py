"""TensorFlow made a device of a GPU, but no operation ran on it

The program computed on the CPU although it had a GPU: it asks for the CPU, or its variables were made there and the
operations followed them. TensorFlow takes the memory of an unused GPU, too.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.traced import GUIDE, MOST, cpu_scopes, on_cpu
from gpudiag.fix import edit, edit_note
from gpudiag.model.program import ProgramTrace
from gpudiag.model.report import Severity

CAUSE = Cause(
    title="TensorFlow made {gpus}, and no operation ran there",
    severity=Severity.WARNING,
    fix=(
        edit_note(
            "take tf.device('/CPU:0') out of the lines above, or hide the GPUs directly after import tensorflow:"
        ),
        edit("tf.config.set_visible_devices([], 'GPU')", "then no memory of a GPU is taken"),
    ),
    url=f"{GUIDE}#manual_device_placement",
    needs_gpu=False,
    unless={
        "gpu_asked_for_not_used": "the operations that were for that GPU are named",
    },
)


def find(program: ProgramTrace) -> Matches:
    for process in program.processes:
        gpus = [device.name for device in process.gpus]
        mine = [placement for placement in program.placed if placement.process == process.pid]
        used = any("GPU" in device for device in program.operations(process))
        could = [placement for placement in mine if placement.why in ("scope", "variable", "none")]
        if gpus and could and not used and not program.raised:  # else it ended before it came to them
            yield Match(
                evidence=(*cpu_scopes(program, process.pid), *on_cpu(could))[:MOST], figures={"gpus": ", ".join(gpus)}
            )
