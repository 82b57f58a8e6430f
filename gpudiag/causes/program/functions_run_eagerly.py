"""functions or a Keras model run eagerly, without a graph

run_functions_eagerly(True), and compile(run_eagerly=True) of a Keras model, are for finding errors: each operation of a
function is started from Python, one by one, and a GPU waits for it. No graph is optimized.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.fix import edit, edit_note
from gpudiag.model.program import ProgramTrace, place
from gpudiag.model.program import SettingFate as Fate
from gpudiag.model.report import Severity

CAUSE = Cause(
    title="{what} runs eagerly, since {where}",
    severity=Severity.NOTE,
    fix=(edit("tf.config.run_functions_eagerly(False)"),),
    url="https://www.tensorflow.org/api_docs/python/tf/config/run_functions_eagerly",
    needs_gpu=False,
    symptom=True,
)
_SWITCHES = {
    "enable_debug_mode": (
        "each function of tf.data",
        edit_note("take tf.data.experimental.enable_debug_mode() out"),
    ),
    "run_functions_eagerly": ("every tf.function", edit("tf.config.run_functions_eagerly(False)")),
    "run_eagerly": (
        "a model of Keras",
        edit_note("take run_eagerly=True out of model.compile(...)"),
    ),
}


def find(program: ProgramTrace) -> Matches:
    for setting in program.settings:
        if setting.what in _SWITCHES and setting.value == "True" and setting.fate is Fate.TOOK_EFFECT:
            what, instead = _SWITCHES[setting.what]
            yield Match(
                evidence=(f"{place(setting.line)}: {setting.what} {setting.value}",),
                figures={"what": what, "where": place(setting.line)},
                fix=(instead,),
            )
            return
