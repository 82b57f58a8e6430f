"""Shared by causes of programs: settings without their effect, and lines of the program in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpudiag.cause import Match
from gpudiag.fix import edit_note, unset
from gpudiag.model.program import Placed, ProgramTrace, Setting, place

GUIDE = "https://www.tensorflow.org/guide/gpu"
GROWTH_GUIDE = f"{GUIDE}#limiting_gpu_memory_growth"
MOST = 8
"""The most settings and lines that a report names for one cause."""


def settings(program: ProgramTrace, fate: str) -> Iterator[Match]:
    """Yield a match for each line and kind of setting with one of these fates; several GPUs count once."""
    found: dict[tuple[str, ...], list[Setting]] = {}
    for setting in program.settings:
        if setting.fate == fate:
            found.setdefault((setting.what, setting.line, setting.why, repr(setting.instead)), []).append(setting)
    for (what, line, why, _), several in list(found.items())[:MOST]:
        values = ", ".join(dict.fromkeys(setting.value for setting in several))
        take_out = edit_note(f"take it out of {place(line)}") if line else unset(what)
        yield Match(
            evidence=(
                f"{place(line)}: {what} {values}".rstrip() if line else f"{what}={values} in the environment",
                why,
            ),
            figures={"setting": _named(what, several), "where": f"at {place(line)}" if line else "in the environment"},
            fix=(several[0].instead or take_out,),
        )


def _named(what: str, several: Iterable[Setting]) -> str:
    """Return how settings are named in a sentence; for a session, its relevant options."""
    if what not in ("session", "server", "enable_eager_execution"):
        return what
    options = dict.fromkeys(setting.value.partition("=")[0] for setting in several)
    return f"{' and '.join(options)} of the {what.partition('_')[0]}"


_BECAUSE = {
    "asked": "a GPU was asked for",
    "scope": "the CPU was asked for",
    "variable": "its variable is on the CPU",
    "none": "not asked for",
}


def cpu_scopes(program: ProgramTrace, process: int) -> tuple[str, ...]:
    """Return a line for each scope in which a process of the program asked for the CPU."""
    asking = [scope for scope in program.scopes if scope.process == process and "CPU" in scope.device.upper()]
    return tuple(f"{place(scope.line)}: with tf.device({scope.device!r})" for scope in asking[:2])


def on_cpu(placed: Iterable[Placed]) -> tuple[str, ...]:
    """Return a line for each kind of operation that ran on the CPU and could have run on a GPU."""
    return tuple(
        f"{place(placement.line)}: {placement.op} x{placement.count}"
        f"{f' in {placement.function}' if placement.function else ''} on the CPU: {_BECAUSE[placement.why]}"
        for placement in sorted(placed, key=lambda entry: -entry.count)
    )
