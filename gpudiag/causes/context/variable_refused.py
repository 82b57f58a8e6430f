"""TensorFlow cannot use the value of a variable, and stops

Some values that TensorFlow cannot use are not ignored but end the import or the creation of devices:
TF_GPU_THREAD_MODE reads global, gpu_private and gpu_shared alone, and TF_PLUGGABLE_DEVICE_LIBRARY_PATH must exist.
The error has the value, and rarely the variable's name. If the error is not a known one and contains the value,
this cause is possible: a run without the variable shows it.
"""

from __future__ import annotations

import re

from gpudiag.cause import Cause, Match, Matches, Program, Variables
from gpudiag.causes.shared.variables import TYPES, Errors
from gpudiag.fix import Role, edit_note, export, note, unset
from gpudiag.knowledge.log_lines import Log, text
from gpudiag.knowledge.messages.settings import NO_PLUGGABLE_LIBRARY, THREAD_MODE_INVALID
from gpudiag.knowledge.variables import ACCEPTED, SETTINGS, THREAD_MODE, WITHHELD
from gpudiag.model.diagnosis import Confidence, Stage

CAUSE = Cause(
    title="{name}={value!r}: {what}",
    fix=(
        unset("{name}"),
        export(
            "TF_GPU_THREAD_MODE",
            "global",
            "or gpu_private or gpu_shared: TensorFlow accepts no other value",
            role=Role.ALTERNATIVE,
        ),
    ),
    url="https://www.tensorflow.org/guide/gpu#setup",
    needs_gpu=False,
    views=("host.environment.threads_refused",),
)
_MODE, *_MODES = ACCEPTED[THREAD_MODE].words
_KNOWN = {
    THREAD_MODE: (
        THREAD_MODE_INVALID,
        export(THREAD_MODE, _MODE, f"or {' or '.join(_MODES)}: it reads no other value"),
    ),
    "TF_PLUGGABLE_DEVICE_LIBRARY_PATH": (
        NO_PLUGGABLE_LIBRARY,
        note("or give it the folder, or the library, of a plug-in for this release of TensorFlow"),
    ),
}
"""Variables for which TensorFlow's error is known, each with the fix."""
_OF_OTHERS = ("CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "PYTHONPATH", "TF_XLA_FLAGS", "XLA_FLAGS", TYPES)
"""Variables whose errors another cause explains."""
_SAYS_LITTLE = re.compile(r"true|false|none|auto|[\d.:,-]*|.{0,2}", re.IGNORECASE)
"""A value that an error may contain by chance."""


def find(variables: Variables, errors: Errors, program: Program) -> Matches:
    told = set()
    for stage, error in errors:
        for name, value in variables.items():
            known, instead = _KNOWN.get(name, (None, None))
            found = Log((error,)).first(known) if known is not None else None
            exact = found is not None and found["value"] == value
            if name in told or not (exact or _stands_in(name, value, error)):
                continue
            told.add(name)
            yield Match(
                evidence=(f"{name}={value}", text(error)),
                confidence=Confidence.PROVED if exact else Confidence.POSSIBLE,
                figures={
                    "name": name,
                    "value": value,
                    "what": "TensorFlow cannot use it" if exact else "TensorFlow's error contains it",
                },
                fix=(CAUSE.fix[0], instead),
                tried=CAUSE.fix[0],
                stage=stage,
            )
    for name, (message, instead) in _KNOWN.items():
        if name not in told and (said := program.first(message)):
            yield Match(
                evidence=(text(said.line),),
                figures={"name": name, "value": said["value"], "what": "TensorFlow could not use it in the program"},
                fix=(
                    edit_note(f"remove {name} from the program, and from the environment that starts it"),
                    instead,
                ),
                stage=Stage.CONFIGURATION,
            )


def _stands_in(name: str, value: str, error: str) -> bool:
    """Return True if the error names the variable, or contains its whole value, which may be chance."""
    if name in _OF_OTHERS:
        return False
    if re.search(rf"\b{re.escape(name)}\b", error):
        return True
    if value == WITHHELD or _SAYS_LITTLE.fullmatch(value):
        return False
    # A path of CONTEXT, such as CONDA_PREFIX, is a part of every path below it.
    after = r"(?![\w-]|\.\w)" if name in SETTINGS else r"(?![\w/-]|\.\w)"
    return re.search(rf"(?<![\w./-]){re.escape(value)}{after}", error) is not None
