"""The rows of the host show the causes that the facts alone show, under the names that reports have had for them."""

from __future__ import annotations

import msgspec
import pytest

from examples.facts import example, example_with_gpus
from examples.hosts import Case, cases
from gpudiag import catalogue, causes
from gpudiag.catalogue import Entry
from gpudiag.model.facts import Facts
from gpudiag.model.report import Limits
from gpudiag.run import views

HOST = [entry for entry in catalogue.entries() if entry.reading is None]
CASES = [pytest.param(entry, case, id=f"{entry.name}: {case.name}") for entry in HOST for case in cases(entry.name)]


def name(entry: Entry) -> str:
    return entry.name


@pytest.mark.parametrize(("entry", "case"), CASES)
def test_a_case_is_judged_as_it_says(entry: Entry, case: Case) -> None:
    judged = views.judge(entry, None, case.facts, case.limits)
    assert sorted(finding.kind for finding in judged.findings) == sorted(case.expect)
    assert judged.verified == ()
    assert judged.figure
    for finding in judged.findings:
        assert finding.message
        assert finding.fix


@pytest.mark.parametrize(("entry", "case"), CASES)
def test_saved_facts_are_judged_alike(entry: Entry, case: Case) -> None:
    facts = case.facts
    saved = msgspec.json.decode(msgspec.json.encode(facts), type=type(facts))
    assert views.judge(entry, None, saved, case.limits) == views.judge(entry, None, facts, case.limits)


@pytest.mark.parametrize("entry", HOST, ids=name)
def test_every_kind_is_shown_by_a_case(entry: Entry) -> None:
    assert {kind.name for kind in views.kinds(entry)} == {kind for case in cases(entry.name) for kind in case.expect}


def test_causes_name_rows_that_there_are_and_one_name_has_one_severity() -> None:
    severities: dict[str, set[str]] = {}
    for cause in causes.all_of_them():
        if cause.declared.finding:
            severities.setdefault(cause.declared.finding, set()).add(cause.declared.severity.value)
        else:
            assert not cause.declared.row_only, f"{cause.id} is shown nowhere"
    assert {finding.rpartition(".")[0] for finding in severities} == {entry.name for entry in HOST}
    assert {finding: several for finding, several in severities.items() if len(several) > 1} == {}


@pytest.mark.parametrize("entry", HOST, ids=name)
@pytest.mark.parametrize("facts", [example(), example_with_gpus(2)], ids=["no GPU", "two GPUs"])
def test_a_healthy_machine_gives_no_finding(entry: Entry, facts: Facts) -> None:
    assert views.judge(entry, None, facts, Limits()).findings == ()
