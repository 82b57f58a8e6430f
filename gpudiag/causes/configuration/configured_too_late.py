"""the program configures GPUs after TensorFlow has made its devices

Which GPUs are visible, memory growth, logical devices and the numbers of threads are read once, when TensorFlow makes
its devices, and a later change raises RuntimeError. An operation or a tensor makes them, but so do
tf.config.list_logical_devices, get_memory_info, `with tf.device`, Dataset.range, MirroredStrategy() and
tf.test.is_gpu_available(); list_physical_devices and get_visible_devices do not. Often the devices are made not by the
program itself but by an imported module that builds a model, or by an earlier cell of the notebook.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Gpus, Match, Matches, Program
from gpudiag.causes.shared.configuration import SETTER
from gpudiag.fix import Action, Role, edit, edit_note, export, note
from gpudiag.knowledge.log_lines import statements
from gpudiag.knowledge.messages.settings import CONFIGURED_TOO_LATE
from gpudiag.knowledge.messages.way import DEVICE_CREATED
from gpudiag.knowledge.variables import FORCE_GROWTH
from gpudiag.model.program import ProgramTrace, SettingFate
from gpudiag.model.report import Severity

CAUSE = Cause(
    title="the program configures {what} after TensorFlow has made its devices",
    severity=Severity.WARNING,
    fix=(
        edit_note("put the line directly after import tensorflow, before other imports that build models"),
        note("move the next line up in the program until it no longer fails, to find what comes first:"),
        edit("from tensorflow.python.eager import context; assert context.context()._context_handle is None"),
        export("TF_FORCE_GPU_ALLOW_GROWTH", "true", "with no change to the program", role=Role.ALTERNATIVE),
    ),
    url="https://www.tensorflow.org/guide/gpu#limiting_gpu_memory_growth",
    needs_gpu=False,
)
_NO_CHANGE = "with no change to the program"
_INSTEAD: dict[str, Action | None] = {
    "Physical devices": export(FORCE_GROWTH, "true", _NO_CHANGE, role=Role.ALTERNATIVE),
    "Intra op parallelism": export("TF_NUM_INTRAOP_THREADS", "N", _NO_CHANGE, role=Role.ALTERNATIVE),
    "Inter op parallelism": export("TF_NUM_INTEROP_THREADS", "N", _NO_CHANGE, role=Role.ALTERNATIVE),
}


def find(program: Program, gpus: Gpus, watched: ProgramTrace | None) -> Matches:
    told = [setting.why for setting in watched.settings if setting.fate is SettingFate.TOO_LATE] if watched else []
    for found, error, statement in statements(program, CONFIGURED_TOO_LATE, SETTER):
        if any(error in why for why in told):
            continue  # setting_without_effect says which line made the devices before
        what = found["what"]
        instead = _INSTEAD.get(what, note("in a notebook: restart the kernel, and run that cell first"))
        if what == "Visible devices":
            instead = export("CUDA_VISIBLE_DEVICES", gpus[0].uuid, _NO_CHANGE, role=Role.ALTERNATIVE) if gpus else None
        before = program.said(DEVICE_CREATED, most=1)
        yield Match(
            evidence=tuple(filter(None, (statement, error, *(f"before it: {line}" for line in before)))),
            figures={"what": what.lower()},
            fix=(*CAUSE.fix[:3], instead),
        )
        return
