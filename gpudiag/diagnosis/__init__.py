"""Why TensorFlow does not use the GPU: rules over facts, readings, findings and log lines. Pure."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable
from functools import cache

from gpudiag.diagnosis import lines, steps
from gpudiag.diagnosis.rule import TRACE, Evidence, Rule
from gpudiag.errors import CatalogueError
from gpudiag.model import Diagnosis, RootCause, Stage, Sure

_NOT_FAMILIES = ("lines", "machine", "rule", "steps")
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
    """Return the trace of ``evidence`` and the causes, those of the first stage that failed first."""
    trace = steps.trace(evidence)
    broken_at = next((step.stage for step in trace if step.status == "failed"), None)
    without = evidence.facts.without_gpu
    applicable = [rule for rule in rules() if not (without and rule.needs_gpu)]
    causes = _found([rule for rule in applicable if not rule.last_resort], evidence)
    if without:  # which libraries are missing beside the GPU does not matter
        broken_at = next((cause.stage for cause in causes if cause.stage is not Stage.CONFIGURATION), broken_at)
    first = [cause for cause in causes if broken_at is None or cause.stage is broken_at]
    if not first and broken_at is not None:  # a rule may see a fault that the trace sees later only
        first = [cause for cause in causes if _ORDER.index(cause.stage) < _ORDER.index(broken_at)]
    if not first and broken_at is not None:
        last = _found([rule for rule in applicable if rule.last_resort], evidence)
        first = [cause for cause in last if cause.stage is broken_at]
    as_user = [line for row in evidence.rows if row.probe == TRACE for line in row.log]
    return Diagnosis(
        steps=trace,
        causes=tuple(first),
        folded=tuple(cause for cause in causes if cause not in first),
        harmless=lines.harmless(evidence.lines or lines.worrying(as_user)),
        misleading=lines.misleading(evidence.lines or as_user),
    )


def _found(rules: Iterable[Rule], evidence: Evidence) -> list[RootCause]:
    found = [(rule, cause) for rule in rules for cause in rule.causes(evidence)]
    return [cause for _, cause in sorted(found, key=_rank)]


def _rank(found: tuple[Rule, RootCause]) -> tuple[int, bool, int]:
    rule, cause = found
    return _ORDER.index(cause.stage), rule.symptom, _SURENESS.index(cause.sure)
