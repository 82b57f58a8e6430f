"""Every rule fires on its cases and on nothing else, and says what users need."""

from __future__ import annotations

import re

import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from gpudiag import diagnosis
from gpudiag.diagnosis.rule import TRACE, Evidence, Rule, RuleCase
from gpudiag.diagnosis.visibility import MASK
from gpudiag.hostfacts import DriverFacts, EnvironmentFacts, example, example_with_gpus
from gpudiag.model import Judged, Row, Stage, Sure
from gpudiag.probes.discovery import trace

RULES = diagnosis.rules()
CASES = [pytest.param(rule, case, id=f"{rule.id}: {case.name}") for rule in RULES for case in rule.cases]


PASTEABLE = re.compile(
    r"# \S|[A-Z_]+=\S* \w|/\S+/python -m |"
    r"(?:apptainer|assert|conda|docker|echo|env:|export|for|from|gpudiag|grep|horovodrun|if|import|kubectl|ls|lxc|mv|"
    r"nerdctl|nvidia-smi|pip|podman|ps|pytest|python|resources:|rm|RUN|runtimeClassName:|sbatch|scontrol|srun|sudo|"
    r"systemctl|tf\.\w+|torch\.\w+|ulimit|unset|with|wsl)(?:\W|$)"
)
"""A command, a line of a program or of a file, or a sentence after ``#``."""


@pytest.mark.parametrize(("rule", "case"), CASES)
def test_a_case_fires_or_stays_silent(rule: Rule, case: RuleCase) -> None:
    found = list(rule.causes(case.evidence))
    assert bool(found) is case.fires
    for cause in found:
        assert cause.cause
        assert cause.evidence
        assert cause.fix
        assert cause.url.startswith("https://")
        assert [line for line in cause.fix if not PASTEABLE.match(line)] == []
        assert cause.trial is None or cause.trial.line in cause.fix


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_rule_has_cases_of_both_kinds(rule: Rule) -> None:
    assert {case.fires for case in rule.cases} == {True, False}
    assert rule.why.strip()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_without_a_machine_figures_are_named(rule: Rule) -> None:
    for text in (rule.general_cause, *rule.general_fix):
        assert not re.search(r"\{\w*[!:]?\w*\}|\{\{", text)
        assert text == text.strip()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
@pytest.mark.parametrize("facts", [example(), example_with_gpus(1), example_with_gpus(8)], ids=["none", "1", "8"])
def test_a_rule_is_silent_on_a_healthy_machine(rule: Rule, facts: object) -> None:
    assert list(rule.find(Evidence(facts))) == []  # type: ignore[arg-type]


def test_a_match_may_name_an_earlier_stage_than_its_rule() -> None:
    rule = next(rule for rule in RULES if rule.id == "driver_upgraded_without_reboot")
    by_name = {case.name: next(rule.causes(case.evidence)).stage for case in rule.cases if case.fires}
    assert (by_name["cuInit alone"], by_name["NVML alone"]) == (Stage.DRIVER, Stage.NVML)


def test_under_wsl_windows_may_have_the_gpu() -> None:
    driver = example().driver
    assert isinstance(driver, DriverFacts)
    assert example().without_gpu
    for name in ("wsl_library", "windows_driver"):
        assert not example(driver=replace(driver, **{name: "/a/file"})).without_gpu


def test_no_more_is_said_of_the_driver_than_is_known() -> None:
    rule = next(rule for rule in RULES if rule.id == "runtime_missing")
    missing = next(case.evidence for case in rule.cases if case.fires)
    log = "E0000 00:00:1.2 7 cuda_platform.cc:51] failed call to cuInit: INTERNAL: Failed call to cuInit: {}"
    reading = to_builtins(trace.read_log((log.format("CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"),), 0, None))
    (cause,) = rule.causes(Evidence(missing.facts, rows=(Row(TRACE, (), Judged(), 0.0, reading),)))
    assert "NVML of the driver answers: 535.104.05, 1 GPU(s)" in cause.evidence
    assert "cuInit of the driver fails, too: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH" in cause.evidence
    assert "driver" not in cause.cause


@pytest.mark.parametrize(
    ("overwritten", "sure"),
    [
        ({}, Sure.LIKELY),
        ({"tensorflow": ()}, Sure.LIKELY),
        ({"tensorflow": ("tensorflow/__init__.py",), "tensorflow-cpu": ()}, Sure.PROVED),
        ({"tensorflow": (), "tensorflow-cpu": ()}, Sure.POSSIBLE),
    ],
)
def test_a_mixture_is_proved_by_files_and_not_by_metadata(overwritten: dict[str, tuple[str, ...]], sure: Sure) -> None:
    for name in ("distributions_mixed", "mixture_breaks_import"):
        rule = next(rule for rule in RULES if rule.id == name)
        mixed = next(case.evidence for case in rule.cases if case.fires)
        facts = replace(mixed.facts, tensorflow=replace(mixed.facts.tensorflow, overwritten=overwritten))
        assert [cause.sure for cause in rule.causes(Evidence(facts, rows=mixed.rows))] == [sure]


def test_what_the_program_caught_is_possible_at_most() -> None:
    rule = next(rule for rule in RULES if rule.id == "tensors_do_not_fit")
    sure = {case.name: cause.sure for case in rule.cases for cause in rule.causes(case.evidence)}
    assert sure == {"a large tensor": Sure.LIKELY, "caught, it seems": Sure.POSSIBLE}


def test_the_root_comes_before_its_symptom() -> None:
    reading = to_builtins(trace.read_log((), 1, None))
    log = (
        "W gpu_device.cc:2251] Cannot dlopen some GPU libraries. Skipping registering GPU devices...",
        "    tf.config.set_visible_devices(tf.config.list_physical_devices('GPU')[0], 'GPU')",
        "IndexError: list index out of range",
    )
    evidence = Evidence(example_with_gpus(1), rows=(Row(TRACE, (), Judged(), 0.0, reading),), lines=log)
    causes = [cause.rule for cause in diagnosis.diagnose(evidence).causes]
    assert causes == ["program_ran_elsewhere", "element_of_no_gpus"]


@pytest.mark.parametrize("file", ["/venv/sitecustomize.py", ""])
def test_what_python_sets_at_its_start_no_shell_can_unset(file: str) -> None:
    rule = next(rule for rule in RULES if rule.id == "mask_hides_all")
    facts = example_with_gpus(1, environment=EnvironmentFacts({MASK: "-1"}, {MASK: file}))
    (cause,) = rule.causes(Evidence(facts))
    assert cause.trial is None
    (line,) = cause.fix
    assert line.startswith(f"# take {MASK} out of {file or 'the sitecustomize.py'}")
