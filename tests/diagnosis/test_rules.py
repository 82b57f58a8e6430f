"""Every rule fires on its cases and on nothing else, and says what users need."""

from __future__ import annotations

import pytest

from gpudiag import diagnosis
from gpudiag.diagnosis.rule import Evidence, Rule, RuleCase
from gpudiag.hostfacts import example, example_with_gpus

RULES = diagnosis.rules()
CASES = [pytest.param(rule, case, id=f"{rule.id}: {case.name}") for rule in RULES for case in rule.cases]


@pytest.mark.parametrize(("rule", "case"), CASES)
def test_a_case_fires_or_stays_silent(rule: Rule, case: RuleCase) -> None:
    found = list(rule.causes(case.evidence))
    assert bool(found) is case.fires
    for cause in found:
        assert cause.cause
        assert cause.evidence
        assert cause.fix
        assert cause.url.startswith("https://")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_rule_has_cases_of_both_kinds(rule: Rule) -> None:
    assert {case.fires for case in rule.cases} == {True, False}
    assert rule.why.strip()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
@pytest.mark.parametrize("facts", [example(), example_with_gpus(1), example_with_gpus(8)], ids=["none", "1", "8"])
def test_a_rule_is_silent_on_a_healthy_machine(rule: Rule, facts: object) -> None:
    assert list(rule.find(Evidence(facts))) == []  # type: ignore[arg-type]
