"""most operations ran on the CPU

TensorFlow has kernels for GPUs for all that is counted here. The program asks for the CPU by tf.device, or makes its
variables or its tensors there, and the operations follow them. Operations that still run on the GPU need a copy of
their inputs and results, so that the program may be slower than without a GPU.
"""

from __future__ import annotations

from collections import Counter

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.traced import GUIDE, MOST, cpu_scopes, on_cpu
from gpudiag.fix import edit_note
from gpudiag.model.program import ProgramTrace
from gpudiag.model.report import Severity

CAUSE = Cause(
    title="{share} % of the operations ran on the CPU: {on_gpu} of {count} ran on a GPU",
    severity=Severity.NOTE,
    fix=(edit_note("take tf.device('/CPU:0') out of the lines above, and make variables and tensors outside of it"),),
    url=f"{GUIDE}#manual_device_placement",
    needs_gpu=False,
    symptom=True,
    unless={
        "gpu_asked_for_not_used": "the operations that were for that GPU are named",
    },
)
_LEAST = 30
_SHARE = 0.8


def find(program: ProgramTrace) -> Matches:
    runs = Counter[tuple[int, str]]()
    for function in program.functions:
        runs[function.process, function.name] += function.runs
    for process in program.processes:
        fell = [placed for placed in program.placed if placed.process == process.pid and placed.could_use_gpu]
        cpu = sum(placed.count * max(runs.get((process.pid, placed.function), 1), 1) for placed in fell)
        gpu = sum(number for device, number in program.operations(process).items() if device.startswith("GPU"))
        if process.gpus and gpu and cpu >= _LEAST and cpu >= _SHARE * (cpu + gpu):
            yield Match(
                evidence=(*cpu_scopes(program, process.pid), *on_cpu(fell))[:MOST],
                figures={"share": 100 * cpu // (cpu + gpu), "on_gpu": f"{gpu:,}", "count": f"{cpu + gpu:,}"},
            )
            return
