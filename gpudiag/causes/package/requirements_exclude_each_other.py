"""no installation fits all requirements: they exclude each other

pip, conda, uv and Poetry look for releases that satisfy all that is asked for, and stop if there are none. The lines
below "The conflict is caused by", or the sentences that begin with "Because", name the packages and their requirements.
Each release of TensorFlow accepts only a few versions of numpy, protobuf, Keras and Python.
"""

from __future__ import annotations

from gpudiag.cause import Cause, LogAlone, Match, Matches
from gpudiag.fix import Action, Kind, Role, ask, conda_environment, install, note, run
from gpudiag.knowledge.messages.installing import CONDA_NOT_SOLVED, REQUIREMENTS_CONFLICT
from gpudiag.knowledge.origin import Origin
from gpudiag.knowledge.releases import Version
from gpudiag.knowledge.requirements import (
    TENSORFLOWS,
    StatedRequirement,
    canonical,
    companion,
    contradicting,
    has_companion,
    not_published,
    pythons_of_conda,
    stated,
    that_takes,
)
from gpudiag.model.diagnosis import Confidence

_APART = run(
    "python -m venv another",
    "or each of the two in its own environment",
    kind=Kind.NEW_ENVIRONMENT,
    role=Role.ALTERNATIVE,
)

CAUSE = Cause(
    title="{what}",
    fix=(
        install("numpy>=1.23.5,<2"),
        install("tensorflow==2.18.*", "numpy>=2", role=Role.ALTERNATIVE),
        _APART,
    ),
    url="https://pip.pypa.io/en/stable/topics/dependency-resolution/",
    needs_gpu=False,
)


def find(program: LogAlone, origin: Origin) -> Matches:
    if program.first(REQUIREMENTS_CONFLICT, CONDA_NOT_SOLVED) is None:
        return
    pair = contradicting(stated(program.lines))
    if pair is None and (builds := pythons_of_conda(program.lines)) is not None:
        yield _of_python(program, *builds)
        return
    if pair is None:
        yield from _not_published(program)
        return
    easier, other = sorted(pair, key=lambda each: each.by != "")  # what the user asks for is the easiest to change
    yield Match(
        (*program.said(REQUIREMENTS_CONFLICT, CONDA_NOT_SOLVED)[:1], *dict.fromkeys((easier.line, other.line))),
        Confidence.LIKELY,
        {
            "what": f"{easier.who} and {other.who} exclude each other: no {easier.needs} is both {easier.range} and "
            f"{other.range}",
        },
        fix=_fix(easier, other),
        explains=program.all(REQUIREMENTS_CONFLICT, CONDA_NOT_SOLVED),
    )


def _of_python(program: LogAlone, package: str, pythons: list[str], yours: str) -> Match:
    return Match(
        program.said(CONDA_NOT_SOLVED)[:1],
        Confidence.LIKELY,
        {"what": f"conda has {package} for Python {', '.join(pythons)} here, and the environment has {yours}"},
        fix=(
            run(
                f"conda create -n tf python={pythons[-1]} {package}; conda activate tf",
                "a new environment",
                kind=Kind.NEW_ENVIRONMENT,
            ),
            conda_environment("tensorflow", note="or use the TensorFlow of pip in a new environment", python=yours),
        ),
    )


def _not_published(program: LogAlone) -> Matches:
    if (requirement := not_published(program.lines)) is None:
        return
    who = requirement.who if requirement.by else "the project"
    exact = f"{requirement.by or requirement.needs}!={requirement.release or requirement.range}"
    yield Match(
        (requirement.line,),
        Confidence.LIKELY,
        {
            "what": f"{who} asks for {requirement.needs} {requirement.range}, "
            "and there is no such release for this Python and system"
        },
        fix=(
            run(
                f"poetry add '{exact}'",
                f"with uv: uv add; another release of {requirement.by or requirement.needs}: "
                "the one before or after it",
                kind=Kind.INSTALL,
            ),
            ask(f"pip index versions {requirement.needs}", "which there are"),
            install("tensorflow==2.15.1", note="pip itself takes no part of another system's requirements")
            if requirement.needs in ("tensorflow-intel", "tensorflow-macos", "tensorflow-cpu-aws")
            else None,
        ),
        explains=program.all(REQUIREMENTS_CONFLICT, CONDA_NOT_SOLVED),
    )


def _fix(easier: StatedRequirement, other: StatedRequirement) -> tuple[Action, ...]:
    if easier.needs == "python":
        python = other if canonical(other.by) in TENSORFLOWS else easier
        return (
            run(
                f"conda create -n tf 'python{python.range}'",
                f"a Python for {python.who}; and install there",
                kind=Kind.NEW_ENVIRONMENT,
            ),
            note(
                f"or ask for another release of {python.by or other.by}: without a version, the newest for this Python"
            ),
        )
    if canonical(easier.needs) in TENSORFLOWS:
        return (*_of_tensorflow(easier, other), _APART)
    newest = that_takes(easier.needs, taken) if (taken := easier.takes) is not None else None
    is_ours = canonical(other.by) in TENSORFLOWS
    return (
        install(
            f"{easier.needs}{other.range}",
            note=f"in place of {easier.needs}{easier.range}: for {other.who}"
            + ("" if easier.by else "; change it in your requirements"),
        ),
        install(f"tensorflow=={newest}.*", f"{easier.needs}{easier.range}", note="or the newest that takes that")
        if is_ours and newest
        else run(
            f"pip install {' '.join(filter(None, (easier.by, other.by)))}",
            "or without versions: pip chooses what fits",
            kind=Kind.INSTALL,
            role=Role.ALTERNATIVE,
        ),
        _APART,
    )


def _of_tensorflow(easier: StatedRequirement, other: StatedRequirement) -> tuple[Action, ...]:
    """Return the fix for packages that require different releases of TensorFlow."""
    asks = other if other.by else easier
    wanted = easier if asks is other else other
    numbers = [part for part in wanted.range.lstrip("=<>~! ").split(".") if part.isdecimal()]
    fits = companion(asks.by, Version(int(numbers[0]), int(numbers[1]))) if len(numbers) > 1 else ""
    if fits:
        bring = install(f"{asks.by}=={fits}", f"tensorflow{wanted.range}", note="the release of it for that TensorFlow")
    elif has_companion(asks.by):
        bring = install(asks.by, note="with its own TensorFlow: each release of it is for one of TensorFlow")
    else:
        bring = install("--upgrade", asks.by, f"tensorflow{wanted.range}", note="a release of it for that TensorFlow")
    return bring, install(f"tensorflow{asks.range}", note=f"or the TensorFlow that {asks.who} needs")
