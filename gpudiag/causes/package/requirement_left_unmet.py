"""a package needs another version of a package than the one that is installed

pip installs a requested version even if an installed package needs another one, and only prints a warning. The package
that needs it may still work, fail when it is imported, or fail much later. Packages that check their requirements
themselves (transformers, setuptools' entry points) stop with such a line.
"""

from __future__ import annotations

from packaging.version import InvalidVersion
from packaging.version import Version as Exact

from gpudiag.cause import Cause, Match, Matches, Program
from gpudiag.fix import Action, Kind, ask, install, run
from gpudiag.knowledge.log import recognised
from gpudiag.knowledge.message import Worth
from gpudiag.knowledge.origin import Origin
from gpudiag.knowledge.releases import Version
from gpudiag.knowledge.requirements import (
    TENSORFLOWS,
    StatedRequirement,
    canonical,
    companion,
    needed,
    overlap,
    specifiers,
    stated,
    that_takes,
)
from gpudiag.model.diagnosis import Confidence

_CHECK = ask("python -m pip check", "must report no broken requirements")

CAUSE = Cause(
    title="{by} needs {needs}{range}, and {needs} {found} is installed",
    fix=(
        install("numpy>=1.23.5,<2"),
        install("--upgrade", "PACKAGE", note="or a release of it that takes what is installed"),
        _CHECK,
    ),
    url="https://pip.pypa.io/en/stable/cli/pip_check/",
    needs_gpu=False,
    general=True,
    symptom=True,
)


def find(program: Program, origin: Origin) -> Matches:
    unmet = [requirement for requirement in stated(program.lines) if requirement.found and _is_unmet(requirement)]
    if not unmet or any(_is_known(line) for line in program.lines):
        return
    requirement = min(unmet, key=lambda each: (canonical(each.by) not in TENSORFLOWS, each.needs not in TENSORFLOWS))
    yield Match(
        (requirement.line,),
        Confidence.POSSIBLE if len(unmet) > 1 else Confidence.LIKELY,
        {
            "by": requirement.who if requirement.by else "a package",
            "needs": requirement.needs,
            "range": requirement.range,
            "found": requirement.found,
        },
        fix=(*_fix(requirement, origin), _CHECK),
    )


def _is_unmet(requirement: StatedRequirement) -> bool:
    try:
        return requirement.takes is not None and not requirement.takes.contains(
            Exact(requirement.found), prereleases=True
        )
    except InvalidVersion:
        return False


def _is_known(line: str) -> bool:
    """Return whether a line names a fault by itself; pip's messages about packages are then usually irrelevant."""
    return any(
        event.message.worth is Worth.FAULT and event.message.fix and not event.message.symptom
        for event in recognised(line)
    )


def _fix(requirement: StatedRequirement, origin: Origin) -> tuple[Action, Action]:
    again = run(
        f"pip install --upgrade {requirement.by or 'PACKAGE'}",
        f"or a release of it that takes {requirement.needs} {requirement.found}",
        kind=Kind.INSTALL,
    )
    if requirement.needs in TENSORFLOWS:
        numbers = requirement.found.split(".")
        fits = companion(requirement.by, Version(int(numbers[0]), int(numbers[1]))) if len(numbers) > 1 else ""
        fitting = install(f"{requirement.by}=={fits}", note="or the release of it for the TensorFlow that is installed")
        return install(
            f"{requirement.needs}{requirement.range}", note=f"what {requirement.who} needs"
        ), fitting if fits else again
    if canonical(requirement.by) in TENSORFLOWS:
        takes = specifiers(f"=={requirement.found}")
        newer = that_takes(requirement.needs, takes) if takes is not None else None
        if newer:
            again = install(
                f"tensorflow=={newer}.*", note=f"or a TensorFlow that takes {requirement.needs} {requirement.found}"
            )
        return install(f"{requirement.needs}{requirement.range}", note=f"what {requirement.who} takes"), again
    own = needed(origin.releases[1], requirement.needs) if origin.releases[0] == origin.releases[1] else ""
    ranges = specifiers(own), requirement.takes
    if own and ranges[0] is not None and ranges[1] is not None:
        if overlap(ranges[0], ranges[1]):
            return install(
                f"{requirement.needs}{requirement.range},{own}", note=f"what {requirement.who} and TensorFlow take"
            ), again
        return (
            run(
                f"python -m venv another && another/bin/pip install {requirement.by}",
                f"TensorFlow {origin.releases[1]} takes {requirement.needs}{own} alone: an environment for each",
                kind=Kind.NEW_ENVIRONMENT,
            ),
            again,
        )
    return install(f"{requirement.needs}{requirement.range}", note=f"what {requirement.who} needs"), again
