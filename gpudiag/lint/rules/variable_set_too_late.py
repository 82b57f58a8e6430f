"""a variable is set after TensorFlow has read it already

The CUDA driver reads CUDA_VISIBLE_DEVICES once, at the first listing of devices, operation or session. TensorFlow reads
what concerns memory and threads when it makes its devices, and a few names at import tensorflow. A strategy of several
workers reads TF_CONFIG when it is made, and import keras reads KERAS_BACKEND. A later assignment changes nothing in
this process, without a warning. An import of a module that sets the variable counts as well. A process that is spawned
imports the program again: what its top level reads is read before the function is called.

Bad
    import os
    import tensorflow as tf

    print(tf.config.list_physical_devices("GPU"))
    os.environ["CUDA_VISIBLE_DEVICES"] = ""

Good
    import os

    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    import tensorflow as tf

    print(tf.config.list_physical_devices("GPU"))
"""

from __future__ import annotations

import re

from gpudiag.fix import edit_note
from gpudiag.knowledge import tensorflow_api as api
from gpudiag.knowledge.variables import CLUSTER
from gpudiag.lint.program import LintedProgram, ProgramEvent, SetByImport, Variable
from gpudiag.lint.rule import Matches, Rule, Violation
from gpudiag.lint.settings import MASK, mask_before
from gpudiag.lint.values import Made
from gpudiag.model.report import Severity

_READ = (
    api.READ_AT_IMPORT,
    api.READ_AT_QUERY,
    api.READ_BY_KERAS,
    api.READ_BY_STEPS,
    api.READ_WITH_DEVICES,
)
RULE = Rule(
    message="{name} is set after {what} in {place}, which has read it already",
    severity=Severity.WARNING,
    fix=(edit_note("set it before {before}"),),
    words=("CUDA_", "KERAS_", "NVIDIA_", "TF_", "XLA_"),
    also=tuple(sorted({CLUSTER}.union(*_READ))),
    url="https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-environment-variables",
    cause="mask_set_too_late",
)
_FOR_OTHERS = re.compile(
    r"\b(?:subprocess|Popen|multiprocessing|os\.(?:exec\w+|spawn\w+|system)|ray|mp\.Process)\b|__import__\('os'\)\.system\('python"
)
_GETTERS = frozenset({"os.environ.get", "os.getenv", "os.environ.pop"})


def find(program: LintedProgram) -> Matches:
    for event in program.events:
        variable = event.setting if isinstance(event, SetByImport) else event
        if not isinstance(variable, Variable) or variable.how == "env":
            continue
        earlier, before = _reader(event, variable.name)
        if earlier is None or _puts_back(variable):
            continue
        of_child = variable.frame.child
        if variable.name not in api.READ_AT_IMPORT and not of_child and any(map(_starts_others, (event, variable))):
            continue  # a child process gets it
        name = variable.name if variable is event else f"{variable.name} ({variable.place(program)})"
        figures = {"name": name, "what": earlier.what, "place": earlier.place(program), "before": before}
        yield Violation(event, figures, fix=(_EACH,) if variable.name == MASK and mask_before(earlier) else ())


_EACH = edit_note("show all GPUs from the start and use tf.device for each part, or start a process for each mask")


def _starts_others(event: ProgramEvent) -> bool:
    """Return whether a file starts other processes: a notebook may also do that with a shell line or a shell cell."""
    return event.module.mentions(_FOR_OTHERS) or b"%%bash" in event.module.source.raw


def _puts_back(event: Variable) -> bool:
    """Return whether the setting restores the variable's former value for later code."""
    value = event.value
    return isinstance(value, Made) and value.name in _GETTERS and value.constant(0, "key") == event.name


_READERS: tuple[tuple[frozenset[str], tuple[str, ...], str], ...] = (
    (api.READ_AT_IMPORT, ("import",), "import tensorflow"),
    (api.READ_BY_KERAS, ("keras",), "import keras"),
    (frozenset({CLUSTER}), ("cluster",), "the strategy is made"),
    (api.READ_AT_QUERY, ("query",), "the first listing of devices; best before import tensorflow"),
    (api.READ_WITH_DEVICES, ("devices", "allocators"), "the first operation; best before import tensorflow"),
    (api.READ_BY_STEPS, ("steps",), "the first step; best before import tensorflow"),
)
"""Variables, the effects of what reads them, and what a setting must precede."""


def _reader(event: ProgramEvent, name: str) -> tuple[ProgramEvent | None, str]:
    """Return the earlier event that has read the variable, and the event that the setting must precede."""
    effects, before = next((row[1:] for row in _READERS if name in row[0]), ((), ""))
    return event.before(*effects), before
