"""TensorFlow cannot use the value of a variable, and stops

Some values that TensorFlow cannot use are not ignored but end the import or the creation of devices:
TF_GPU_THREAD_MODE reads global, gpu_private and gpu_shared alone, and TF_PLUGGABLE_DEVICE_LIBRARY_PATH must exist.
The error has the value, and rarely the variable's name. If the error is not a known one and contains the value,
this cause is possible: a run without the variable shows it. Keras reads its backend from KERAS_BACKEND, or else from
keras.json in KERAS_HOME or ~/.keras, which may be of an older Keras, whose backends Keras 3 does not have.
"""

from __future__ import annotations

import re
from shlex import quote
from typing import NamedTuple

from gpudiag.cause import Cause, Match, Matches, Program
from gpudiag.causes.shared.variables import TYPES, Errors
from gpudiag.fix import Action, Role, edit_note, export, note, run, unset
from gpudiag.knowledge.log_lines import Log, text
from gpudiag.knowledge.message import Message
from gpudiag.knowledge.messages.settings import NO_KERAS_BACKEND, NO_PLUGGABLE_LIBRARY, THREAD_MODE_INVALID
from gpudiag.knowledge.variables import ACCEPTED, SETTINGS, THREAD_MODE, WITHHELD
from gpudiag.model.diagnosis import Confidence, Stage
from gpudiag.model.facts import EnvironmentFacts

CAUSE = Cause(
    title="{setting}: {what}",
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
KERAS_BACKEND = "KERAS_BACKEND"
OF_KERAS = export(KERAS_BACKEND, "tensorflow", "in place of what ~/.keras/keras.json names", role=Role.ALTERNATIVE)


class _Known(NamedTuple):
    """A variable for which the error is known."""

    message: Message
    what: str
    instead: Action | None = None


_KNOWN = {
    THREAD_MODE: _Known(
        THREAD_MODE_INVALID,
        "TensorFlow cannot use it",
        export(THREAD_MODE, _MODE, f"or {' or '.join(_MODES)}: it reads no other value"),
    ),
    "TF_PLUGGABLE_DEVICE_LIBRARY_PATH": _Known(
        NO_PLUGGABLE_LIBRARY,
        "TensorFlow cannot use it",
        note("or give it the folder, or the library, of a plug-in for this release of TensorFlow"),
    ),
    KERAS_BACKEND: _Known(NO_KERAS_BACKEND, "this Keras has no such backend"),
}
_OF_OTHERS = ("CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "PYTHONPATH", "TF_XLA_FLAGS", "XLA_FLAGS", TYPES)
"""Variables whose errors another cause explains."""
_SAYS_LITTLE = re.compile(r"true|false|none|auto|[\d.:,-]*|.{0,2}", re.IGNORECASE)
"""A value that an error may contain by chance."""


def find(environment: EnvironmentFacts, errors: Errors) -> Matches:
    told = set()
    backend, file = environment.keras_backend, environment.keras_backend_from
    for stage, error in errors:
        for name, value in {KERAS_BACKEND: backend, **environment.variables}.items():
            known = _KNOWN.get(name)
            found = Log((error,)).first(known.message) if known is not None else None
            exact = found is not None and found["value"] == value
            in_file = name not in environment.variables
            if name in told or not (exact or (not in_file and _stands_in(name, value, error))):
                continue
            told.add(name)
            setting = f"{file} names the backend {value!r}" if in_file else f"{name}={value!r}"
            yield Match(
                evidence=(setting if in_file else f"{name}={value}", text(error)),
                confidence=Confidence.PROVED if exact else Confidence.POSSIBLE,
                figures={
                    "name": name,
                    "setting": setting,
                    "what": known.what if known and exact else "TensorFlow's error contains it",
                },
                fix=(_in_file(file, value), OF_KERAS) if in_file else (CAUSE.fix[0], known and known.instead),
                tried=OF_KERAS if in_file else CAUSE.fix[0],
                stage=stage,
            )


def find_in_log(program: Program) -> Matches:
    for name, known in _KNOWN.items():
        if said := program.first(known.message):
            remove = edit_note(f"remove {name} from the program, and from the environment that starts it")
            yield Match(
                evidence=(text(said.line),),
                figures={"name": name, "setting": f"{name}={said['value']!r}", "what": known.what},
                fix=(OF_KERAS.replaced(role=Role.FIX),) if name == KERAS_BACKEND else (remove, known.instead),
                stage=Stage.PACKAGE if name == KERAS_BACKEND else Stage.CONFIGURATION,
            )


def _in_file(file: str, backend: str) -> Action:
    """Return the command that names Keras's backend tensorflow in its settings file."""
    command = f'sed -i \'s/"{backend}"/"tensorflow"/\' {quote(file)}'
    return run(command, "or delete the file: Keras writes a new one")


def _stands_in(name: str, value: str, error: str) -> bool:
    """Return True if the error names the variable, or contains the whole value of a setting, which may be chance."""
    if name in _OF_OTHERS:
        return False
    if re.search(rf"\b{re.escape(name)}\b", error):
        return True
    if name not in SETTINGS or value == WITHHELD or _SAYS_LITTLE.fullmatch(value):
        return False
    return re.search(rf"(?<![\w./-]){re.escape(value)}(?![\w-]|\.\w)", error) is not None
