"""a line of the program, or a module that it imports, hides every GPU from the process

CUDA_VISIBLE_DEVICES and tf.config.set_visible_devices hold for the process, whichever file sets them: a helper
function, or a module that is imported, sets them for the whole process. TensorFlow then computes on the CPU without a
warning. This cause is reported if an import hides the GPUs, if the process was given a GPU of its own, or if the
program asks for GPUs by a strategy that names some, by an option of their memory, or by mixed precision.
MirroredStrategy() asks for none: it takes what is visible.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.fix import edit, edit_note
from gpudiag.knowledge.variables import ALLOCATOR, FORCE_GROWTH
from gpudiag.model.program import Process, ProgramTrace, Setting, SettingFate, place
from gpudiag.model.report import Severity
from gpudiag.text import counted

CAUSE = Cause(
    title="{where} hides every GPU from the process, {although}",
    severity=Severity.WARNING,
    fix=(edit_note("take {where} out, or let only the program run it that needs no GPU"),),
    url="https://www.tensorflow.org/guide/gpu#limiting_gpu_memory_growth",
    needs_gpu=False,
    unless={"gpu_asked_for_not_used": "the operations that were for a GPU are named"},
)
_FOR_GPUS = ("memory_growth", "logical_devices", "dtype_policy", "tensor_float_32", FORCE_GROWTH, ALLOCATOR)
_FIRST = edit("tf.config.list_physical_devices('GPU')[:1]", "the GPU that CUDA_VISIBLE_DEVICES leaves is the first")


def find(program: ProgramTrace) -> Matches:
    named = set()
    for process in program.processes:
        uses = [use for use in program.gpus if use.process == process.pid]
        lines = {use.line for use in uses if all(use.is_hidden for use in uses)}
        hiding = [
            setting
            for setting in program.settings
            if setting.line in lines - {""}
            and setting.process == process.pid
            and setting.fate is not SettingFate.OTHER_EFFECT  # that is named by itself
        ]
        if not hiding or process.gpus or not process.operations:
            continue
        setting = next((setting for setting in hiding if setting.what == "visible_devices"), hiding[0])
        asked = _asked(program, process, setting)
        given = setting.what == "visible_devices" and _is_given_one(program, process)
        if (setting.by_import or asked or given) and setting.line not in named:
            named.add(setting.line)
            by_import = f"when {place(setting.by_import)} imports that file"
            mask = f"which was started with CUDA_VISIBLE_DEVICES={process.mask}" if given else ""
            yield Match(
                evidence=(
                    f"process {process.pid}, {place(setting.line)}: {setting.what} {setting.value}",
                    *([f"{place(setting.by_import)} imports that file"] if setting.by_import else []),
                    *asked,
                    f"{counted(len(uses), 'GPU')} hidden; {counted(process.operations, 'operation', ',')} on the CPU",
                ),
                figures={
                    "where": place(setting.line),
                    "although": mask or ("although it asks for GPUs" if asked else by_import),
                },
                fix=(_FIRST,) if given else CAUSE.fix,
            )


def _is_given_one(program: ProgramTrace, process: Process) -> bool:
    """Return whether a mask gave this process GPUs of its own, beside another process with another mask."""
    masks = {other.mask for other in program.processes if other.mask and other.mask[0] != "-" and other.devices}
    return process.mask in masks and len(masks) > 1


def _asked(program: ProgramTrace, process: Process, hiding: Setting) -> list[str]:
    """Return the lines with which a process asks for GPUs."""
    strategies = [
        f"{place(strategy.line)}: {strategy.strategy} on {', '.join(strategy.devices)}"
        for strategy in program.replicas
        if strategy.process == process.pid and any(device.startswith("GPU") for device in strategy.devices)
    ]
    return strategies + [
        f"{place(setting.line)}: {setting.what} {setting.value}"
        for setting in program.settings
        if (setting.process, setting.what in _FOR_GPUS) == (process.pid, True)
        and setting.line not in ("", hiding.line)
        and setting.value != "float32"
    ]
