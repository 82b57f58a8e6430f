"""Describes the result of a search: what is in the way, and the lines to type. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence

from gpudiag.causes.shared.limits import KINDS, in_shell
from gpudiag.facts.start_files import CONDA, KERNEL, LOGIN, SHELL, UNIT, FileSetting
from gpudiag.fix import Action, Kind, export, note, run, unset
from gpudiag.knowledge.settings_of_files import entries
from gpudiag.knowledge.variables import WITHHELD
from gpudiag.model.diagnosis import Bisection, BisectionOutcome, EnvironmentChange
from gpudiag.run.bisect.parts import (
    ENTRY,
    FILE,
    FOLDER,
    GPU,
    GROUP,
    LIMIT,
    MASK,
    USER_SITE,
    VARIABLE,
    EnvironmentPart,
    Surroundings,
    remaining,
)
from gpudiag.run.bisect.search import SearchResult
from gpudiag.text import printable

Shown = Callable[[str, str], str]
"""Returns the part of a variable's value that may be shown, given its name and value."""

_WHY_NOT_HERE = {
    SHELL: "this process was not started by a shell that read it",
    LOGIN: "this process was not started by a login that read it",
    KERNEL: "this process was not started by that Jupyter kernel",
    UNIT: "it does so for that service alone",
    CONDA: "conda runs it when it activates the environment",
}
MOST_NAMED = 6
_ANOTHER_HOME = run(
    'export HOME="$(mktemp -d)"',
    "then look for what TensorFlow or Python reads in your own",
    kind=Kind.SET_VARIABLE,
)


def bisection(
    result: SearchResult,
    around: Surroundings,
    settings: Sequence[FileSetting],
    shown: Shown,
    *,
    wanted: int,
    tried: int,
    seconds: float,
    untried: tuple[str, ...] = (),
) -> Bisection:
    """Return the record of a search for the report."""
    alone = any(part.kind == GPU for part in result.taken)
    changes = [
        *_taken(result.taken, around, settings, shown),
        *(_added(setting, around, shown) for setting in result.added),
    ]
    return Bisection(
        outcome=result.outcome,
        changes=tuple(changes),
        before=printable(result.before.text(wanted))
        if result.outcome is not BisectionOutcome.OUT_OF_TIME or result.before.failed
        else "",
        after=printable(result.after.text(1 if alone else wanted)) if changes else "",
        wanted=wanted,
        tried=tried,
        seconds=round(seconds, 1),
        untried=untried,
    )


def _taken(
    parts: tuple[EnvironmentPart, ...], around: Surroundings, settings: Sequence[FileSetting], shown: Shown
) -> Iterable[EnvironmentChange]:
    changed: dict[str, Action] = {}
    for name in dict.fromkeys(part.name for part in parts if part.kind == ENTRY):
        value = remaining(name, around, parts)
        changed[name] = unset(name) if value is None else export(name, value)
    failing = [part.name for part in parts if part.kind == GPU]
    if failing:
        kept = ",".join(uuid for uuid in around.gpus if uuid not in failing)
        changed = {failing[0]: export(MASK, kept)}
    for part in parts:
        yield EnvironmentChange(
            name=printable(_name(part)),
            what=printable(_thing(part, shown)),
            fix=_shown(changed.pop(part.name, None) if part.kind in (ENTRY, GPU) else _without(part)),
            origin=printable(_origin(part, settings)),
        )


def _shown(action: Action | None) -> Action | None:
    """Return an action as it can be shown; an action with unprintable characters is not shown as a command."""
    if action is None:
        return None
    same = action.replaced(command=printable(action.command))
    return action if same == action else same.replaced(change=None)


def _name(part: EnvironmentPart) -> str:
    return part.value if part.kind == ENTRY and part.value else part.name


def _thing(part: EnvironmentPart, shown: Shown) -> str:
    if part.kind == VARIABLE:
        value = shown(part.name, part.value)
        return part.name if value == WITHHELD else f"{part.name}={value}"
    if part.kind == ENTRY:
        if part.name.endswith("_FLAGS"):
            return f"{part.value} in {part.name}"
        value = part.value or "empty: the working directory"
        return f"entry {part.number} of {part.name} ({value})"
    if part.kind == GPU:
        return f"GPU {part.number} ({part.name})"
    if part.kind == USER_SITE:
        return f"a package in {part.name}"
    if part.kind == LIMIT:
        return f"the limit on {KINDS[part.name].words} ({part.name} in /proc/self/limits)"
    if part.kind == FOLDER:
        return f"a file in the working directory {part.name}"
    if part.kind == FILE:
        return part.name
    names = [leaf.name for leaf in part.leaves]
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"one of {part.name} ({', '.join(dict.fromkeys(names[:MOST_NAMED]))}{more})"


def _without(part: EnvironmentPart) -> Action | None:
    """Return how to start a program without a part of the environment."""
    if part.kind == FILE:
        return run(f"mv {shlex.quote(part.name)} {shlex.quote(f'{part.name}.off')}")
    if part.kind == USER_SITE:
        return export("PYTHONNOUSERSITE", "1")
    if part.kind == FOLDER:
        return run("cd /")
    if part.kind == LIMIT:
        return in_shell(part.name)
    if part.kind == GROUP:
        return None
    if part.name == "HOME":
        return _ANOTHER_HOME
    return export("PATH", "/usr/local/bin:/usr/bin:/bin") if part.name == "PATH" else unset(part.name)


def _origin(part: EnvironmentPart, settings: Sequence[FileSetting]) -> str:
    """Return which file sets the part that is in the way, if one does."""
    if part.kind == GPU:
        return f"GPU {part.number} alone: {part.value}"
    if part.kind not in (VARIABLE, ENTRY):
        return ""
    origins = [setting for setting in settings if setting.name == part.name and (part.value in setting.value)]
    return f"{origins[-1].file} line {origins[-1].line} sets {part.name}" if origins else ""


def _added(setting: FileSetting, around: Surroundings, shown: Shown) -> EnvironmentChange:
    value = shown(setting.name, setting.value)
    here = {entry for _, entry in entries(setting.name, around.variables.get(setting.name, ""))}
    new = [entry for _, entry in entries(setting.name, setting.value) if entry not in here]
    return EnvironmentChange(
        name=setting.name,
        what=setting.name
        if value == WITHHELD
        else f"{' and '.join(new)} in {setting.name}"
        if here
        else f"{setting.name}={value}",
        fix=_shown(export(setting.name, setting.value))
        if value != WITHHELD
        else note(f"set {setting.name} as {setting.file} does", kind=Kind.SET_VARIABLE),
        origin=f"{setting.file} line {setting.line} sets it; {_WHY_NOT_HERE[setting.kind]}",
        missing=True,
    )
