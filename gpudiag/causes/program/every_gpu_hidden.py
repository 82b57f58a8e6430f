"""{where} hides every GPU from the whole process, {although}

CUDA_VISIBLE_DEVICES and tf.config.set_visible_devices hold for the process, whichever file sets them: a helper, or a
module that does it while it is imported, does it for everything else. TensorFlow computes on the CPU and says nothing.
It is said if an import does it, or if the program asks for GPUs by a strategy for several, by an option of their
memory, or by mixed precision.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.fix import Kind, note
from gpudiag.knowledge.variables import ALLOCATOR, FORCE_GROWTH
from gpudiag.model.program import Process, ProgramTrace, place
from gpudiag.model.report import Severity
from gpudiag.text import counted

CAUSE = Cause(
    severity=Severity.NOTE,
    fix=(note("take {where} out, or let only the program run it that needs no GPU", kind=Kind.EDIT_PROGRAM),),
    url="https://www.tensorflow.org/guide/gpu#limiting_gpu_memory_growth",
    needs_gpu=False,
    symptom=True,
    unless=("gpu_asked_for_not_used",),
)
_FOR_GPUS = ("memory_growth", "logical_devices", "dtype_policy", "tensor_float_32", FORCE_GROWTH, ALLOCATOR)
_FOR_SEVERAL = ("MirroredStrategy", "MultiWorkerMirroredStrategy", "CentralStorageStrategy")


def find(program: ProgramTrace) -> Matches:
    for process in program.processes:
        uses = [use for use in program.gpus if use.process == process.pid]
        line = uses[0].line if uses and all(use.is_hidden for use in uses) else ""
        setting = next((setting for setting in program.settings if line and setting.line == line), None)
        if setting is None or process.gpus or not process.operations:
            continue
        asked = _asked(program, process, line)
        if setting.by_import or asked:
            by_import = f"when {place(setting.by_import)} imports that file"
            yield Match(
                evidence=(
                    f"{place(line)}: {setting.what} {setting.value}",
                    *([f"{place(setting.by_import)} imports that file"] if setting.by_import else []),
                    *asked,
                    f"{counted(len(uses), 'GPU')} hidden; {counted(process.operations, 'operation or function', ',')} "
                    "ran on the CPU",
                ),
                figures={"where": place(line), "although": "although it asks for GPUs" if asked else by_import},
            )
            return


def _asked(program: ProgramTrace, process: Process, line: str) -> list[str]:
    """Return the lines with which a process asks for GPUs."""
    found = [
        f"{place(strategy.line)}: {strategy.strategy} on {', '.join(strategy.devices)}"
        for strategy in program.replicas
        if strategy.process == process.pid and strategy.strategy in _FOR_SEVERAL
    ]
    return found + [
        f"{place(setting.line)}: {setting.what} {setting.value}"
        for setting in program.settings
        if setting.process == process.pid
        and setting.what in _FOR_GPUS
        and setting.line not in ("", line)
        and setting.value != "float32"
    ]
