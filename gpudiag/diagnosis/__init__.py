"""Why TensorFlow does not use the GPU: rules over facts, readings, findings and log lines. Pure."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Mapping
from functools import cache

import msgspec

from gpudiag.diagnosis import steps
from gpudiag.diagnosis.rule import TRACE, Evidence, Rule
from gpudiag.errors import CatalogueError
from gpudiag.knowledge.log import Worth
from gpudiag.log import Log
from gpudiag.model import Diagnosis, Failed, RootCause, Stage, Step, Sure
from gpudiag.record import Record

_NOT_FAMILIES = ("machine", "rule", "steps")
_ORDER = list(Stage)
_SURENESS = list(Sure)


@cache
def rules() -> tuple[Rule, ...]:
    """Return every rule, ordered by stage and then by name; raises :class:`CatalogueError` for two of one name."""
    found = [
        rule
        for family in pkgutil.iter_modules(__path__)
        if family.name not in _NOT_FAMILIES
        for rule in importlib.import_module(f"{__name__}.{family.name}").RULES
    ]
    names = [rule.id for rule in found]
    for name in names:
        if names.count(name) > 1:
            raise CatalogueError(f"two rules are called {name!r}")
    return tuple(sorted(found, key=lambda rule: (_ORDER.index(rule.stage), rule.id)))


def get(name: str) -> Rule | None:
    """Return the rule called ``name``, or None."""
    return next((rule for rule in rules() if rule.id == name), None)


def diagnose(evidence: Evidence) -> Diagnosis:
    """Return the trace of ``evidence`` and the causes, those of the first stage that failed first.

    Each part looks for itself: one that raises is named among those that failed, and costs no other.
    """
    return composed(evidence, {part: look(part, evidence) for part in parts(evidence)})


class Looked(Record):
    """What one part of the diagnosis has found."""

    steps: tuple[Step, ...] = ()
    causes: tuple[RootCause, ...] = ()
    lines: tuple[str, ...] = ()
    failed: str = ""
    """Why it found nothing, where it broke."""


_STEPS = "the trace"
_HARMLESS = "harmless lines of the log"
_MISLEADING = "misleading lines of the log"


def parts(evidence: Evidence) -> tuple[str, ...]:
    """Return the names of the parts that make up the diagnosis: the rules that apply, the trace, the lines of logs."""
    return (_STEPS, *(rule.id for rule in _applicable(evidence)), _HARMLESS, _MISLEADING)


def look(part: str, evidence: Evidence) -> Looked:
    """Return what one of :func:`parts` finds; an error of its own is told there, never raised."""
    as_user = Log(line for row in evidence.rows if row.probe == TRACE for line in row.log)
    try:
        if part == _STEPS:
            found = Looked(steps=steps.trace(evidence))
        elif part == _HARMLESS:
            found = Looked(lines=(evidence.program if evidence.lines else as_user.worrying).named(Worth.HARMLESS))
        elif part == _MISLEADING:
            found = Looked(lines=(evidence.program if evidence.lines else as_user).named(Worth.MISLEADING))
        else:
            found = Looked(causes=tuple(_rule(part).causes(evidence)))
        msgspec.json.encode(found)  # a text that JSON cannot hold must not cost the whole report
    except (Exception, SystemExit) as error:
        return Looked(failed=f"it raised {type(error).__name__}: {error!a}")
    return found


def composed(evidence: Evidence, looked: Mapping[str, Looked]) -> Diagnosis:
    """Return the diagnosis that the parts have ``looked`` up; one that is not there counts as failed."""
    trace = looked[_STEPS].steps if _STEPS in looked else ()
    broken_at = next((step.stage for step in trace if step.status == "failed"), None)
    rules = [rule for rule in _applicable(evidence) if rule.id in looked]
    causes = _ranked([rule for rule in rules if not rule.last_resort], looked)
    if evidence.facts.without_gpu:  # which libraries are missing beside the GPU does not matter
        broken_at = next((cause.stage for cause in causes if cause.stage is not Stage.CONFIGURATION), broken_at)
    first = [cause for cause in causes if broken_at is None or cause.stage is broken_at]
    if not first and broken_at is not None:  # a rule may see a fault that the trace sees later only
        first = [cause for cause in causes if _ORDER.index(cause.stage) < _ORDER.index(broken_at)]
    if not first and broken_at is not None:
        last = _ranked([rule for rule in rules if rule.last_resort], looked)
        first = [cause for cause in last if cause.stage is broken_at]
    return Diagnosis(
        steps=trace,
        causes=tuple(first),
        folded=tuple(cause for cause in causes if cause not in first),
        harmless=looked[_HARMLESS].lines if _HARMLESS in looked else (),
        misleading=looked[_MISLEADING].lines if _MISLEADING in looked else (),
        failed=tuple(Failed(part, one.failed) for part, one in looked.items() if one.failed),
    )


def _applicable(evidence: Evidence) -> list[Rule]:
    without = evidence.facts.without_gpu
    return [rule for rule in rules() if not (without and rule.needs_gpu)]


def _rule(name: str) -> Rule:
    return next(rule for rule in rules() if rule.id == name)


def _ranked(rules: Iterable[Rule], looked: Mapping[str, Looked]) -> list[RootCause]:
    found = [(rule, cause) for rule in rules for cause in looked[rule.id].causes]
    return [cause for _, cause in sorted(found, key=_rank)]


def _rank(found: tuple[Rule, RootCause]) -> tuple[int, bool, int]:
    rule, cause = found
    return _ORDER.index(cause.stage), rule.symptom, _SURENESS.index(cause.sure)
