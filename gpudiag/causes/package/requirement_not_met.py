"""{what}: `import tensorflow` fails

pip checks what a package requires when it installs that package, and no later: another `pip install`, an uninstall
that was interrupted, a copied environment or a wheel for another Python leave TensorFlow with a package that it cannot
use. The traceback names the package in which it ends, not always the one that is wrong.
"""

from __future__ import annotations

from itertools import groupby
from pathlib import PurePath

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.imports import Traceback, executable, interpreter
from gpudiag.causes.shared.packages import off_the_path
from gpudiag.fix import Action, Kind, check, run
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.facts import Facts, Requirement, TensorflowFacts

CAUSE = Cause(
    fix=(
        run("python -m pip install 'numpy>=1.26'", kind=Kind.INSTALL),
        check("{python} -m pip check", "what else does not fit"),
    ),
    url="https://pip.pypa.io/en/stable/cli/pip_check/",
    needs_gpu=False,
    unless=("distributions_mixed", "module_shadowed"),
)


def find(facts: Facts, failed: Traceback, installed: TensorflowFacts) -> Matches:
    unfit = [one for one in installed.requirements if not one.fits]
    touched = [one for one in unfit if failed.touches(one)]
    python = executable(facts)
    order = {one.name: number for number, one in reversed([*enumerate(unfit)])}
    for name, group in groupby(sorted(touched or unfit, key=lambda one: order[one.name]), lambda one: one.name):
        asked = list(group)
        one = asked[0]
        own = {distribution.location for distribution in installed.distributions}
        elsewhere = one.location if one.location and one.location not in own else ""
        yield Match(
            (
                f"import tensorflow raised {failed.error}",
                *_seen(asked),
                *([f"TensorFlow is in {' and '.join(own)}: {elsewhere} comes before it"] if elsewhere else []),
                *(interpreter(facts) if not one.version else ()),
            ),
            _sure(one, failed) if touched else Confidence.POSSIBLE,
            {"what": _what(asked), "python": python},
            fix=(
                _removed(facts, name, elsewhere, python),
                run(f"{python} -m pip install {_arguments(asked)}", kind=Kind.INSTALL),
                CAUSE.fix[1],
            ),
        )


def _sure(one: Requirement, failed: Traceback) -> Confidence:
    """What is not there is proved by an error that says so; another version is only known not to be asked for."""
    absent = one.version is None or bool(one.gone) or bool(one.foreign_tag)
    return Confidence.PROVED if absent and one.name in failed.distributions else Confidence.LIKELY


def _what(asked: list[Requirement]) -> str:
    one = asked[0]
    if one.version is None:
        return f"{one.name} is not installed"
    if not one.version:
        return f"of {one.name} only a part is left"
    if one.foreign_tag:
        return f"{one.name} {one.version} is a wheel for another Python"
    if one.gone:
        return f"{one.name} {one.version} is registered as installed, and files of it are gone"
    return f"{one.name} {one.version} is installed, and {' and '.join(f'{one.by} needs {one.wanted}' for one in asked)}"


def _seen(asked: list[Requirement]) -> list[str]:
    one = asked[0]
    if not one.location:
        return [f"{one.by} requires {one.wanted}" for one in asked]
    where = f"{one.name} {one.version} is in {one.location}".replace("  ", " ")
    if one.foreign_tag:
        return [f"{where}: its wheel is {one.foreign_tag}"]
    return [f"{where}: there is no {', '.join(one.gone)}" if one.gone else where]


def _removed(facts: Facts, name: str, elsewhere: str, python: str) -> Action | None:
    """Return what takes a copy away that is not beside TensorFlow: the right one may be there already."""
    if not elsewhere:
        return None
    return off_the_path(facts, PurePath(elsewhere)) or run(
        f"{python} -m pip uninstall -y {name}", f"in {elsewhere}", kind=Kind.REMOVE
    )


def _arguments(asked: list[Requirement]) -> str:
    """Return what pip is to install: what is asked for, or the same version again if only files of it are wrong."""
    one = asked[0]
    if one.in_range and one.version:
        return f"--force-reinstall --no-deps --no-cache-dir '{one.name}=={one.version}'"
    again = "--force-reinstall --no-deps " if one.version == "" else ""
    specifiers = dict.fromkeys(part for one in asked for part in one.specifier.split(",") if part)
    return f"{again}'{one.name}{','.join(specifiers)}'"
