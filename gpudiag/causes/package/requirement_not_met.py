"""a package that TensorFlow requires is missing or does not fit: `import tensorflow` fails

pip checks what a package requires when it installs that package, and no later: another `pip install`, an uninstall
that was interrupted, a copied environment or a wheel for another Python leave TensorFlow with a package that it cannot
use. The traceback names the package in which it ends, not always the one that is wrong.
"""

from __future__ import annotations

from itertools import groupby
from pathlib import PurePath

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.imports import Traceback, executable, interpreter
from gpudiag.causes.shared.packages import off_the_path, shown_source
from gpudiag.fix import Action, Kind, check, install, run
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.facts import Facts, Requirement, TensorflowFacts

CAUSE = Cause(
    title="{what}: `import tensorflow` fails",
    fix=(
        install("numpy>=1.26", python="python"),
        check("{python} -m pip check", "shows other packages that do not fit"),
    ),
    url="https://pip.pypa.io/en/stable/cli/pip_check/",
    needs_gpu=False,
    unless={
        "distributions_mixed": "one of the two TensorFlows goes, and its requirements with it",
        "module_shadowed": "the package is not too old: another module has its name",
    },
)


def find(facts: Facts, failed: Traceback, installed: TensorflowFacts) -> Matches:
    unfit = [requirement for requirement in installed.requirements if not requirement.fits]
    touched = [requirement for requirement in unfit if failed.touches(requirement)]
    python = executable(facts)
    order = {requirement.name: number for number, requirement in reversed([*enumerate(unfit)])}
    for name, group in groupby(
        sorted(touched or unfit, key=lambda requirement: order[requirement.name]), lambda requirement: requirement.name
    ):
        asked = list(group)
        first = asked[0]
        own = {distribution.location for distribution in installed.distributions}
        elsewhere = first.location if first.location and first.location not in own else ""
        yield Match(
            (
                f"import tensorflow raised {failed.error}",
                *_seen(asked),
                *([f"TensorFlow is in {' and '.join(own)}: {elsewhere} comes before it"] if elsewhere else []),
                *(shown_source(facts, PurePath(elsewhere)) if elsewhere else ()),
                *(interpreter(facts) if not first.version else ()),
            ),
            _sure(first, failed) if touched else Confidence.POSSIBLE,
            {"what": _what(asked), "python": python},
            fix=(
                _removed(facts, name, elsewhere, python),
                install(*_arguments(asked), python=python),
                CAUSE.fix[1],
            ),
        )


def _sure(requirement: Requirement, failed: Traceback) -> Confidence:
    """Return how certain the cause is: a missing package is proved by its error, a wrong version is only likely."""
    absent = requirement.version is None or bool(requirement.gone) or bool(requirement.foreign_tag)
    return Confidence.PROVED if absent and requirement.name in failed.distributions else Confidence.LIKELY


def _what(asked: list[Requirement]) -> str:
    first = asked[0]
    if first.version is None:
        return f"{first.name} is not installed"
    if not first.version:
        return f"of {first.name} only a part is left"
    if first.foreign_tag:
        return f"{first.name} {first.version} is a wheel for another Python"
    if first.gone:
        return f"{first.name} {first.version} is registered as installed, and files of it are gone"
    needs = " and ".join(f"{requirement.by} needs {requirement.wanted}" for requirement in asked)
    return f"{first.name} {first.version} is installed, and {needs}"


def _seen(asked: list[Requirement]) -> list[str]:
    first = asked[0]
    if not first.location:
        return [f"{requirement.by} requires {requirement.wanted}" for requirement in asked]
    where = f"{first.name} {first.version} is in {first.location}".replace("  ", " ")
    if first.foreign_tag:
        return [f"{where}: its wheel is {first.foreign_tag}"]
    return [f"{where}: there is no {', '.join(first.gone)}" if first.gone else where]


def _removed(facts: Facts, name: str, elsewhere: str, python: str) -> Action | None:
    """Return how to remove a copy in another folder than TensorFlow's: the right copy may exist already."""
    if not elsewhere:
        return None
    return off_the_path(facts, PurePath(elsewhere)) or run(
        f"{python} -m pip uninstall -y {name}", f"in {elsewhere}", kind=Kind.REMOVE
    )


def _arguments(asked: list[Requirement]) -> tuple[str, ...]:
    """Return pip's arguments: the required version, or the installed version again if only its files are wrong."""
    first = asked[0]
    if first.in_range and first.version:
        return "--force-reinstall", "--no-deps", "--no-cache-dir", f"{first.name}=={first.version}"
    again = ("--force-reinstall", "--no-deps") if first.version == "" else ()
    specifiers = dict.fromkeys(part for requirement in asked for part in requirement.specifier.split(",") if part)
    return *again, f"{first.name}{','.join(specifiers)}"
