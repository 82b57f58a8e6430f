"""an imported file hides every GPU: this program computes on the CPU

A module that is imported runs its top level in the same process. Some hide the GPUs for their own work, because it
needs none or because another framework is to have them, and then every other user of TensorFlow in the process is
without a GPU, without a warning. A mask that the program has set before is replaced.

Bad
    import os

    os.environ["CUDA_VISIBLE_DEVICES"] = "0"
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # or the same in a module that is imported
    import tensorflow as tf

    model.fit(x, y)

Good
    import os

    os.environ["CUDA_VISIBLE_DEVICES"] = "0"
    import tensorflow as tf

    model.fit(x, y)
"""

from __future__ import annotations

import re

from gpudiag.fix import edit_note
from gpudiag.knowledge import tensorflow_api as api
from gpudiag.lint.program import LintedProgram, ProgramEvent, SetByImport, Variable
from gpudiag.lint.rule import Matches, Rule, Violation
from gpudiag.lint.settings import MASK, entries, is_of_tests, mask_before
from gpudiag.lint.values import Const
from gpudiag.model.report import Severity

RULE = Rule(
    message="{by} hides every GPU: this program computes on the CPU",
    severity=Severity.WARNING,
    fix=(
        edit_note("take the setting out of {module}, or put it under if __name__ == '__main__'"),
        edit_note("set CUDA_VISIBLE_DEVICES after the import if the module has to keep it"),
    ),
    words=(MASK, "set_visible_devices"),
    cause="mask_hides_all",
)
_COMPUTES = re.compile(r"\.(?:fit|predict|train_on_batch)\(|GradientTape|\btf\.function\b|MirroredStrategy")
_ON_CPU = re.compile(r"\bcpu\b", re.IGNORECASE)
_OF_SETTINGS = re.compile(r"conf|setting|env|setup|init|cpu|const|common_flags|bootstrap", re.IGNORECASE)


def find(program: LintedProgram) -> Matches:
    if is_of_tests(program) or not program.module.mentions(_COMPUTES):
        return
    for event in program.events:
        setting = event.setting if isinstance(event, SetByImport) else event
        before = mask_before(event)
        replaced = before is not None and bool(entries(before.value)) and isinstance(setting, Variable)
        if not _hides(setting) or (not isinstance(event, SetByImport) and not replaced):
            continue
        if not isinstance(event, SetByImport) and (before is None or _is_apart(event, before)):
            continue
        if not replaced and (_OF_SETTINGS.search(setting.module.name) or program.module.mentions(_ON_CPU)):
            continue
        if not _is_undone(event, program):
            place, module = setting.place(program), setting.module.name
            by = f"the import of {module} ({place})" if isinstance(event, SetByImport) else "this setting"
            yield Violation(event, {"by": by, "module": module})


def _is_apart(event: ProgramEvent, before: ProgramEvent) -> bool:
    """Return whether a setting replaces another on purpose, because it is under a condition or in a function."""
    return bool(event.guards or event.functions or before.functions)


def _hides(event: ProgramEvent) -> bool:
    """Return whether an event hides every GPU."""
    if isinstance(event, Variable):
        known = event.name == MASK and event.how != "env" and isinstance(event.value, Const)
        return known and event.certain and entries(event.value) == []
    return "hides" in event.effects


def _is_undone(event: ProgramEvent, program: LintedProgram) -> bool:
    """Return whether the program chooses GPUs after the event."""
    later = program.events[program.events.index(event) + 1 :]
    return any(
        isinstance(other, Variable) and other.name == MASK and entries(other.value) != [] for other in later
    ) or any(getattr(other, "api", "") == api.VISIBLE and "hides" not in other.effects for other in later)
