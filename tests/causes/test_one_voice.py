"""No report gives two commands for one fault: a finding that a cause explains gives the command of the cause."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from corpus import items
from examples import examples
from examples.hosts import cases
from gpudiag import catalogue, causes
from gpudiag.cause import Evidence
from gpudiag.fix import export, run
from gpudiag.model.diagnosis import Confidence, Diagnosis, RootCause, Stage
from gpudiag.model.report import Finding, Severity
from gpudiag.model.visibility import gpus_in_scope
from gpudiag.report import words
from gpudiag.run import views
from gpudiag.run.views import with_one_voice
from reports import passed, row
from voice import ANOTHER_QUESTION, HOST, checked, commands, contradictions, second_answers


def machines() -> Iterator[tuple[str, Evidence]]:
    """Yield every machine of the examples, of the corpus and of the probes of the host."""
    for name, several in examples().items():
        yield from ((f"{name}: {example.name}", example.evidence) for example in several)
    for item in items():
        if item.evidence is not None:
            yield str(item), item.evidence
    for entry in HOST:
        for case in cases(entry.name):
            yield f"{entry.name}: {case.name}", Evidence(case.facts, gpus_in_scope(case.facts))


MACHINES: dict[str, dict[str, Evidence]] = {}
"""Those of a cause, of an entry of the corpus, or of a probe, by name."""
for _name, _evidence in machines():
    MACHINES.setdefault(_name.partition(":")[0], {})[_name] = _evidence


@pytest.mark.parametrize("of", MACHINES)
def test_no_machine_is_given_two_commands_for_one_fault(of: str) -> None:
    for name, evidence in MACHINES[of].items():
        report = checked(evidence)
        assert contradictions(*report) == [], name
        assert second_answers(*report) == [], name


@pytest.mark.slow
def test_each_pair_that_answers_two_questions_is_met() -> None:
    kept = set(ANOTHER_QUESTION)
    for _, evidence in machines():
        rows, found = checked(evidence)
        shown = {f"{row.probe}.{finding.kind}" for row in rows for finding in row.findings}
        kept -= {(view, cause.cause_id) for view in shown for cause in (*found.causes, *found.folded)}
    assert not kept


def test_two_causes_with_two_commands_are_found_out() -> None:
    causes = [
        RootCause(name, Stage.CONFIGURATION, Confidence.PROVED, "", (), (run(line),), "")
        for name, line in (("a", "export X_Y=1"), ("b", "unset X_Y"), ("c", "unset X_Y"))
    ]
    assert contradictions((), Diagnosis(causes=(causes[0],), folded=(causes[1],)))
    assert contradictions((), Diagnosis(causes=tuple(causes[1:]))) == []


def test_a_second_answer_is_found_out() -> None:
    cause = RootCause("nccl_small_shared_memory", Stage.CONFIGURATION, Confidence.PROVED, "", (), (run("do this"),), "")
    finding = Finding("small_shm", Severity.NOTE, "", (run("do that"),))
    rows = [row("host.collectives", passed("", finding))]
    assert second_answers(rows, Diagnosis(causes=(cause,)))
    assert second_answers(rows, Diagnosis()) == []
    assert second_answers(with_one_voice(rows, Diagnosis(causes=(cause,))), Diagnosis(causes=(cause,))) == []


def test_two_commands_are_found_out() -> None:
    cause = RootCause("growth_not_read", Stage.CONFIGURATION, Confidence.PROVED, "", (), (export("X_Y", "false"),), "")
    finding = Finding("growth_value", Severity.WARNING, "", (export("X_Y", "true"),))
    assert contradictions([row("host.environment", passed("", finding))], Diagnosis(causes=(cause,)))
    assert contradictions([row("host.environment", passed("", finding))], Diagnosis()) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("unset A_B, or export C=1.", [("A_B", "unset A_B"), ("C", "export C=1")]),
        ("pip install 'a-b<2,>=1' c==3", [("a-b", "pip install a-b<2,>=1"), ("c", "pip install c==3")]),
        ("pip install --force-reinstall --no-deps 'x[and-cuda]==2.21.0'", [("x", "pip install x[and-cuda]==2.21.0")]),
        ("look at dmesg", []),
    ],
)
def test_commands_are_read_from_texts(text: str, found: list[tuple[str, str]]) -> None:
    assert list(commands(text)) == found


def test_a_finding_takes_the_advice_of_the_cause_that_names_the_same_thing() -> None:
    libraries = [
        Finding("unopened", Severity.FAIL, "", (run("own advice"),), figures={"library": name})
        for name in ("libcufft.so.11", "libcusolver.so.11")
    ]
    found = Diagnosis(
        causes=tuple(
            RootCause(rule, Stage.LIBRARIES, Confidence.PROVED, "a cause", (), (run(f"do {rule}"),), "", about=(name,))
            for rule, name in (("library_missing", "libcufft.so.11"), ("package_not_on_runpath", "libcusolver.so.11"))
        )
    )
    (result,) = with_one_voice([row("host.libraries", passed("", *libraries))], found)
    assert [words.advice(finding) for finding in result.findings] == [
        "See the cause library_missing: do library_missing",
        "See the cause package_not_on_runpath: do package_not_on_runpath",
    ]
    assert [(finding.kind, finding.message) for finding in result.findings] == [("unopened", ""), ("unopened", "")]


def test_a_finding_without_its_cause_keeps_its_advice() -> None:
    rows = (row("host.environment", passed("", Finding("growth_value", Severity.WARNING, "m", (run("own advice"),)))),)
    assert with_one_voice(rows, Diagnosis()) == rows


def test_the_findings_that_causes_name_can_be_made() -> None:
    kinds = {f"{entry.name}.{kind.name}" for entry in catalogue.entries() for kind in views.kinds(entry)}
    assert {view for cause in causes.all_of_them() for view in cause.declared.views} <= kinds
