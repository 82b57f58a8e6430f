"""The contract of a cause: it is given what the types of its parameters ask for, and not called without that."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from examples import evidence, examples, found
from examples.facts import example_with_gpus
from gpudiag import causes
from gpudiag.cause import GIVEN, CatalogueCause, Cause, Evidence, Match, Matches, Program, Variables
from gpudiag.causes import shared
from gpudiag.cli import describe
from gpudiag.fix import note
from gpudiag.model import renamed
from gpudiag.model.diagnosis import Stage
from gpudiag.model.facts import DriverFacts, EnvironmentFacts, Facts, Unknown
from gpudiag.probes.discovery import trace

ALL = causes.all_of_them()


def known(find: object) -> CatalogueCause:
    cause = Cause(fix=(note("a fix"),), url="https://a.b")
    return CatalogueCause("a_cause", Stage.DRIVER, "a cause", "why", cause, find)  # type: ignore[arg-type]


@pytest.mark.parametrize(("earlier", "name"), renamed.CAUSES.items())
def test_a_cause_is_found_by_its_earlier_name(earlier: str, name: str) -> None:
    assert earlier not in causes.names()
    assert name in causes.names()
    assert causes.get(earlier) is causes.get(name)


@pytest.mark.parametrize("known", [cause for cause in ALL if cause.declared.row_only], ids=lambda known: known.id)
def test_a_sign_declares_nothing_that_only_the_diagnosis_reads(known: CatalogueCause) -> None:
    declared, plain = known.declared, Cause(fix=(), url="")
    assert declared.finding
    unread = ("views", "unless", "needs_gpu", "last_resort", "general", "symptom")
    assert [name for name in unread if getattr(declared, name) != getattr(plain, name)] == []


def test_a_sign_names_the_causes_of_it() -> None:
    sign, cause = causes.get("little_shared_memory"), causes.get("nccl_small_shared_memory")
    assert sign is not None
    assert cause is not None
    assert causes.explaining(sign) == (cause.id,)
    assert causes.explaining(cause) == ()
    assert f": {cause.id}." in describe.explained_cause(sign).prose


def test_what_the_types_ask_for_is_given() -> None:
    def find(variables: Variables, program: Program, facts: Facts, driver: DriverFacts) -> Matches:
        yield Match((variables["A"], *program.lines, str(facts.without_gpu), str(driver.kernel_module)))

    facts = example_with_gpus(1, environment=EnvironmentFacts({"A": "1"}))
    (match,) = known(find).matches(Evidence(facts, lines=("a line",)))
    assert match.evidence == ("1", "a line", "False", "535.104.05")


def test_it_is_not_called_while_something_is_not_known() -> None:
    def of_the_driver(driver: DriverFacts) -> Matches:
        raise AssertionError("called")
        yield

    def of_the_trace(seen: trace.Reading) -> Matches:
        raise AssertionError("called")
        yield

    facts = replace(example_with_gpus(1), driver=Unknown("no answer"))
    for find in (of_the_driver, of_the_trace):
        assert list(known(find).matches(Evidence(facts))) == []


def test_it_is_given_none_if_the_type_says_so() -> None:
    def find(driver: DriverFacts | None, seen: trace.Reading | None, own: Own | None, facts: Facts) -> Matches:
        yield Match((str(driver), str(seen), str(own), str(facts.without_gpu)))

    class Own:
        @classmethod
        def of(cls, evidence: Evidence) -> Own | None:
            return None

    find.__annotations__["own"] = Own | None
    facts = replace(example_with_gpus(1), driver=Unknown("no answer"))
    (match,) = known(find).matches(Evidence(facts))
    assert match.evidence == ("None", "None", "None", "False")


def test_a_type_may_make_its_own_of_the_evidence() -> None:
    class Busy(str):
        __slots__ = ()

        @classmethod
        def of(cls, evidence: Evidence) -> Busy | None:
            return cls(evidence.lines[0]) if evidence.lines else None

    def find(busy: Busy) -> Matches:
        yield Match((busy,))

    find.__annotations__ = {"busy": Busy, "return": Matches}
    assert [match.evidence for match in known(find).matches(Evidence(example_with_gpus(1), lines=("x",)))] == [("x",)]
    assert list(known(find).matches(Evidence(example_with_gpus(1)))) == []


def test_a_cause_asks_for_what_there_is() -> None:
    for cause in ALL:
        assert cause._asked_for, cause.id
        for kind, _ in cause._asked_for:
            assert kind in GIVEN or callable(getattr(kind, "of", None)), (cause.id, kind)
            assert kind is not Evidence, cause.id


def test_a_cause_is_a_file_in_the_folder_of_its_stage() -> None:
    folder = Path(causes.__path__[0])
    files = {file.stem: file.parent.name for file in folder.glob("*/*.py") if not file.stem.startswith("_")}
    of_causes = {name: where for name, where in files.items() if where != Path(shared.__path__[0]).name}
    assert {name: stage.name.lower() for name, stage in causes.names().items()} == of_causes
    assert [cause.id for cause in ALL] == list(causes.names())


def test_every_cause_has_examples_and_every_example_a_cause() -> None:
    assert set(examples()) == set(causes.names())


def test_names_that_causes_give_way_to_are_those_of_causes() -> None:
    assert {name for cause in ALL for name in cause.declared.unless} <= set(causes.names())


def test_each_cause_that_another_gives_way_to_has_its_reason() -> None:
    reasons = [reason for cause in ALL for reason in cause.declared.unless.values()]
    assert len(reasons) <= 96
    assert [reason for reason in reasons if not 3 <= len(reason.split()) <= 15] == []


def test_a_cause_gives_way_to_one_that_says_more() -> None:
    library_missing, interrupted = causes.get("library_missing"), causes.get("installation_interrupted")
    assert library_missing is not None
    assert interrupted is not None
    assert "installation_interrupted" in library_missing.declared.unless
    seen = [
        example.evidence
        for example in examples()["installation_interrupted"]
        if list(interrupted.causes(example.evidence))
    ]
    both = [evidence for evidence in seen if list(library_missing.causes(evidence))]
    assert both, "by itself it would be found"
    assert not any(found("library_missing", evidence) for evidence in both)


def test_a_symptom_gives_way_to_what_it_follows_from() -> None:
    seen = evidence("nouveau_in_use", "loaded")
    module_not_loaded = causes.get("module_not_loaded")
    assert module_not_loaded is not None
    assert module_not_loaded.declared.symptom
    assert list(module_not_loaded.causes(seen)), "by itself it would be found"
    assert not found("module_not_loaded", seen)


def test_an_unknown_cause_is_none() -> None:
    assert causes.get("nonsense") is None
