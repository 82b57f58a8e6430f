"""Every case of every host probe, and what must hold for all of them."""

from __future__ import annotations

import msgspec
import pytest

from examples.hosts import Case, cases
from gpudiag import catalogue
from gpudiag.catalogue import Entry
from gpudiag.hostfacts import Facts, example, example_with_gpus
from gpudiag.model import Limits
from gpudiag.probe import MEANING

HOST = [entry for entry in catalogue.entries() if entry.reading is None]
CASES = [pytest.param(entry, case, id=f"{entry.name}: {case.name}") for entry in HOST for case in cases(entry.name)]


def name(entry: Entry) -> str:
    return entry.name


@pytest.mark.parametrize(("entry", "case"), CASES)
def test_a_case_is_judged_as_it_says(entry: Entry, case: Case) -> None:
    judged = entry.judge(None, case.facts, case.limits)
    assert sorted(finding.kind for finding in judged.findings) == sorted(case.expect)
    assert judged.verified == ()
    assert judged.figure
    for finding in judged.findings:
        assert finding.message
        assert finding.advice


@pytest.mark.parametrize(("entry", "case"), CASES)
def test_saved_facts_are_judged_alike(entry: Entry, case: Case) -> None:
    facts = case.facts
    saved = msgspec.json.decode(msgspec.json.encode(facts), type=type(facts))
    assert entry.judge(None, saved, case.limits) == entry.judge(None, facts, case.limits)


@pytest.mark.parametrize("entry", HOST, ids=name)
def test_every_kind_is_shown_by_a_case(entry: Entry) -> None:
    assert {kind.name for kind in entry.kinds} == {kind for case in cases(entry.name) for kind in case.expect}


@pytest.mark.parametrize("entry", HOST, ids=name)
def test_every_kind_is_documented(entry: Entry) -> None:
    text = catalogue.sections(catalogue.documentation(entry.module))[MEANING]
    assert [kind.name for kind in entry.kinds if f"`{kind.name}`" not in text] == []


@pytest.mark.parametrize("entry", HOST, ids=name)
def test_kinds_and_cases_of_a_probe_have_names_of_their_own(entry: Entry) -> None:
    for names in ([kind.name for kind in entry.kinds], [case.name for case in cases(entry.name)]):
        assert len(names) == len(set(names))


@pytest.mark.parametrize("entry", HOST, ids=name)
@pytest.mark.parametrize("facts", [example(), example_with_gpus(2)], ids=["no GPU", "two GPUs"])
def test_a_healthy_machine_gives_no_finding(entry: Entry, facts: Facts) -> None:
    assert entry.judge(None, facts, Limits()).findings == ()
