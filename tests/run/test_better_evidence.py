"""What hides a cause of weaker evidence: better evidence, for the same stage or an earlier one, that is as certain."""

from __future__ import annotations

import itertools

import pytest

from examples.facts import example_with_gpus
from gpudiag.cause import CatalogueCause, Cause, Evidence, Matches, Program
from gpudiag.fix import run
from gpudiag.model.diagnosis import Confidence, RootCause, Stage
from gpudiag.model.facts import Facts
from gpudiag.run.diagnosis import PartResult, combine

_SHOWN_BY = ("symptom", "log", "facts")
"""The kinds of evidence, the weakest first."""
_STAGES = (Stage.DRIVER, Stage.LIBRARIES, Stage.FIRST_OP)
_CONFIDENCES = tuple(Confidence)


def _from_facts(facts: Facts) -> Matches:
    raise NotImplementedError(facts)


def _from_log(program: Program) -> Matches:
    raise NotImplementedError(program)


def _known(name: str, kind: str, stage: Stage) -> CatalogueCause:
    declared = Cause(fix=(run("true"),), url="https://example.org/", symptom=kind == "symptom", unfit=True)
    return CatalogueCause(name, stage, name, "", declared, _from_log if kind == "log" else _from_facts)


def _cause(name: str, stage: Stage, confidence: Confidence) -> RootCause:
    return RootCause(name, stage, confidence, name, (), (run("true"),), "https://example.org/")


_KINDS = list(itertools.product(_SHOWN_BY, _STAGES, _CONFIDENCES))


def test_only_better_evidence_that_is_as_certain_hides_a_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    evidence = Evidence(example_with_gpus(1))
    hidden = set()
    for weak, strong in itertools.product(_KINDS, _KINDS):
        known = (_known("weak", *weak[:2]), _known("strong", *strong[:2]))
        monkeypatch.setattr("gpudiag.run.diagnosis.rules", lambda known=known: known)
        results = {
            name: PartResult(causes=(_cause(name, stage, confidence),))
            for name, (_, stage, confidence) in (("weak", weak), ("strong", strong))
        }
        found = combine(evidence, results)
        named = {cause.cause_id for cause in (*found.causes, *found.folded)}
        is_better = _SHOWN_BY.index(strong[0]) > _SHOWN_BY.index(weak[0])
        is_before = _STAGES.index(strong[1]) <= _STAGES.index(weak[1])
        is_as_certain = _CONFIDENCES.index(strong[2]) <= _CONFIDENCES.index(weak[2])
        assert ("weak" in named) is not (is_better and is_before and is_as_certain), (weak, strong)
        hidden |= set() if "weak" in named else {(weak, strong)}
    assert len(hidden) == 3 * 6 * 6
