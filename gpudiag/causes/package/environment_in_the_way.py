"""a part of the environment keeps TensorFlow from working: without it, it works

gpudiag started TensorFlow in a clean environment, where it works, and then with ever smaller parts of yours left out:
variables, entries of lists such as LD_LIBRARY_PATH, flags, the files that Python runs when it starts, the user's own
packages, the working directory. The named change is the smallest with which it works here; nothing else was changed. If
nothing had to be left out, what a login shell, a service or a Jupyter kernel sets was added instead. The search needs
no knowledge of the fault, so it finds what no other cause knows; `--bisect 0` switches it off.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.fix import Action, ask, distinct, unset
from gpudiag.model.diagnosis import Bisection, BisectionOutcome, Confidence, EnvironmentChange

CAUSE = Cause(
    title="{what}",
    fix=(unset("LD_PRELOAD"),),
    url="https://www.debuggingbook.org/html/DeltaDebugger.html",
    needs_gpu=False,
)


def find(bisection: Bisection) -> Matches:
    changes = bisection.changes
    if not changes or bisection.gpus:
        return
    missing = changes[0].missing
    whole = bisection.outcome is BisectionOutcome.FOUND
    what, verb = _joined([change.what for change in changes]), "is" if len(changes) == 1 else "are"
    works = f"TensorFlow {'gets its GPU' if bisection.wanted else 'can be imported'}"
    it, gone = ("it", "it is gone") if len(changes) == 1 else ("them", "they are gone")
    unsure = "" if whole else "; the time was up before it was known which of it is needed"
    yield Match(
        evidence=(
            f"as it is: {bisection.before}",
            f"{'with' if missing else 'without'} {it}: {bisection.after}{unsure}",
            *dict.fromkeys(change.origin for change in changes if change.origin),
        ),
        confidence=Confidence.PROVED if whole else Confidence.LIKELY,
        figures={
            "what": f"{what} {verb} not set here: with {it} {works}"
            if missing
            else f"{what} {verb} in the way: {works} as soon as {gone}",
        },
        fix=_lines(changes),
    )


def _lines(changes: tuple[EnvironmentChange, ...]) -> tuple[Action, ...]:
    """Return the actions, with one ``unset`` for several variables."""
    fixes = distinct(change.fix for change in changes if change.fix is not None)
    names = [name for fix in fixes for name in fix.change or {} if _only_unsets(fix)]
    rest = [fix for fix in fixes if not _only_unsets(fix)]
    return (*([unset(*names)] if names else []), *rest) or (ask("gpudiag why --bisect 300", "says which"),)


def _only_unsets(fix: Action) -> bool:
    return fix.change is not None and not any(fix.change.values())


def _joined(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
