"""Every rule fires on its cases and on nothing else, and says what users need."""

from __future__ import annotations

import re
import shlex
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from examples import Example, evidence, examples, found
from examples.facts import example, example_with_gpus
from gpudiag.catalogue import decode_readings
from gpudiag.cause import TRACE, Evidence, Gpus, Rows
from gpudiag.causes import messages
from gpudiag.causes.shared.devices import NO_OTHER_GPU, ChosenGpus
from gpudiag.causes.shared.visibility import MASK
from gpudiag.model.diagnosis import Confidence, Stage
from gpudiag.model.facts import ContainerFacts, DriverFacts, EnvironmentFacts, Facts, NvmlFacts
from gpudiag.model.reading import decode_hook
from gpudiag.model.report import RUN_ENDED, Broken, Judged, NoReading, Row
from gpudiag.model.visibility import gpus_in_scope
from gpudiag.probes.discovery import trace
from gpudiag.run import diagnosis
from reports import fix_line, fix_lines, unreadable

RULES = diagnosis.rules()
CASES = [
    pytest.param(name, example, id=f"{name}: {example.name}")
    for name, several in examples().items()
    for example in several
]


HIDES_ALL = re.compile(r"export CUDA_VISIBLE_DEVICES=(?:GPU-)?(?:\.|\s|$)")
"""A mask that names no GPU: pasted, it leaves TensorFlow none."""


@pytest.mark.parametrize(("name", "example"), CASES)
def test_a_cause_is_found_in_its_examples_and_not_in_those_that_are_nearly_the_same(
    name: str, example: Example
) -> None:
    causes = found(name, example.evidence)
    assert bool(causes) is example.fires
    for cause in causes:
        assert cause.cause
        assert cause.evidence
        assert cause.fix
        assert cause.url.startswith("https://")
        assert [why for action in cause.fix if (why := unreadable(action))] == []
        assert [line for line in fix_lines(cause) if HIDES_ALL.match(line)] == []
        assert cause.trial is None or cause.trial.change in [action.change for action in cause.fix]


def with_spaces(evidence: Evidence) -> Evidence:
    """Return the same machine, its folders called otherwise."""

    def renamed(text: str) -> str:
        return text.replace("/home/someone", "/home/some one").replace("/opt/", "/opt/a b/")

    def changed(given: Any, kind: Any) -> Any:
        return msgspec.json.decode(renamed(msgspec.json.encode(given).decode()), type=kind, dec_hook=decode_hook)

    facts, rows = changed(evidence.facts, Facts), decode_readings(changed(evidence.rows, tuple[Row, ...]))
    return Evidence(facts, evidence.gpus, rows, tuple(map(renamed, evidence.lines)), evidence.limits)


def test_a_path_with_a_space_is_one_word_of_a_fix() -> None:
    """Or a shell takes it as two: ``rm -r`` then removes another folder."""
    lines = [
        line.partition("  #")[0]
        for name, several in examples().items()
        for example in several
        if example.fires and ("/home/someone" in repr(example.evidence) or "/opt/" in repr(example.evidence))
        for cause in found(name, with_spaces(example.evidence))
        for line in fix_lines(cause)
        if not line.startswith("#")
    ]
    named = [line for line in lines if "some one" in line or "a b/" in line]
    assert len(named) > 40
    cut = re.compile(r"/(?:home/some|opt/a)$|^(?:one|b)(?:/|$)")
    assert [line for line in named if any(cut.search(word) for word in shlex.split(line))] == []


def test_a_cause_has_examples_of_both_kinds() -> None:
    for rule in RULES:
        assert {example.fires for example in examples()[rule.id]} == {True, False}, rule.id
        assert rule.why.strip(), rule.id


def test_without_a_machine_a_cause_is_a_sentence() -> None:
    for cause in (*RULES, *messages.all_of_them().values()):
        assert not re.search(r"[{}]|<\w+>", cause.general_cause), cause.id
        assert cause.general_cause.strip(" .") == cause.general_cause, cause.id


def test_without_a_machine_the_figures_of_a_fix_are_named() -> None:
    for rule in RULES:
        for text in (fix_line(action) for action in rule.general_fix):
            assert not re.search(r"\{\w*[!:]?\w*\}|\{\{", text), rule.id
            assert text == text.strip(), rule.id


@pytest.mark.parametrize("facts", [example(), example_with_gpus(1), example_with_gpus(8)], ids=["none", "1", "8"])
def test_every_rule_is_silent_on_a_healthy_machine(facts: Facts) -> None:
    assert {rule.id: found for rule in RULES if (found := list(rule.matches(Evidence(facts))))} == {}


def test_a_match_may_name_an_earlier_stage_than_its_rule() -> None:
    rule = next(rule for rule in RULES if rule.id == "library_and_module_differ")
    by_name = {
        example.name: next(rule.causes(example.evidence)).stage
        for example in examples()[rule.id]
        if example.fires and not example.evidence.lines
    }
    assert (by_name["cuInit alone"], by_name["NVML alone"]) == (Stage.DRIVER, Stage.NVML)


def test_under_wsl_windows_may_have_the_gpu() -> None:
    driver = example().driver
    assert isinstance(driver, DriverFacts)
    assert example().without_gpu
    for name in ("wsl_library", "windows_driver"):
        assert not example(driver=replace(driver, **{name: "/a/file"})).without_gpu


def test_no_more_is_said_of_the_driver_than_is_known() -> None:
    rule = next(rule for rule in RULES if rule.id == "runtime_missing")
    missing = next(example.evidence for example in examples()[rule.id] if example.fires)
    log = "E0000 00:00:1.2 7 cuda_platform.cc:51] failed call to cuInit: INTERNAL: Failed call to cuInit: {}"
    reading = trace.read_log((log.format("CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"),), 0, None)
    (cause,) = rule.causes(Evidence(missing.facts, rows=(Row(TRACE, (), Judged(), 0.0, reading),)))
    assert "NVML of the driver answers: 535.104.05, 1 GPU" in cause.evidence
    assert "cuInit of the driver fails, too: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH" in cause.evidence
    assert "driver" not in cause.cause


@pytest.mark.parametrize(
    ("overwritten", "sure"),
    [
        ({}, Confidence.LIKELY),
        ({"tensorflow": ()}, Confidence.LIKELY),
        ({"tensorflow": ("tensorflow/__init__.py",), "tensorflow-cpu": ()}, Confidence.PROVED),
        ({"tensorflow": (), "tensorflow-cpu": ()}, Confidence.POSSIBLE),
    ],
)
def test_a_mixture_is_proved_by_files_and_not_by_metadata(
    overwritten: dict[str, tuple[str, ...]], sure: Confidence
) -> None:
    for name in ("distributions_mixed", "mixture_breaks_import"):
        rule = next(rule for rule in RULES if rule.id == name)
        mixed = next(example.evidence for example in examples()[rule.id] if example.fires)
        facts = replace(mixed.facts, tensorflow=replace(mixed.facts.tensorflow, overwritten=overwritten))
        assert [cause.confidence for cause in rule.causes(Evidence(facts, rows=mixed.rows))] == [sure]


def test_what_the_program_caught_is_possible_at_most() -> None:
    rule = next(rule for rule in RULES if rule.id == "tensors_do_not_fit")
    sure = {case.name: cause.confidence for case in examples()[rule.id] for cause in found(rule.id, case.evidence)}
    assert sure == {"a large tensor": Confidence.LIKELY, "caught, it seems": Confidence.POSSIBLE}


@pytest.mark.parametrize(
    ("rule", "case", "resets"),
    [
        ("gpu_unavailable", "on one of two", ["1"]),
        ("gpu_unavailable", "on one of two, not known which", []),
        ("gpu_unavailable", "creating devices", ["0"]),
        ("gpu_lost", "by NVML", ["0"]),
        ("gpu_lost", "in a log", []),
        ("out_of_memory_with_room", "the display holds some", []),
    ],
)
def test_only_a_gpu_that_is_known_to_fail_is_reset(rule: str, case: str, resets: list[str]) -> None:
    (cause,) = found(rule, evidence(rule, case))
    commands = [line for line in fix_lines(cause) if "--gpu-reset" in line and not line.startswith("#")]
    assert [re.findall(r"--gpu-reset -i (\d+)  ", line) for line in commands] == [[index] for index in resets]


OTHER = "GPU-00000001-0000-4000-8000-000000000000"


@pytest.mark.parametrize(
    ("rule", "case", "chosen"),
    [
        ("memory_held_by_others", "here", []),
        ("memory_held_by_others", "here, the other GPU is free", [OTHER]),
        ("memory_held_by_others", "here, the other GPU is free and hidden", [OTHER]),
        ("memory_held_by_others", "in the log, of another day", []),
        ("compute_mode_prohibited", "alone", []),
        ("compute_mode_prohibited", "the other is hidden", [OTHER]),
    ],
)
def test_a_free_gpu_is_chosen_where_there_is_one(rule: str, case: str, chosen: list[str]) -> None:
    (cause,) = found(rule, evidence(rule, case))
    assert re.findall(r"^export CUDA_VISIBLE_DEVICES=(\S+)", "\n".join(fix_lines(cause)), re.MULTILINE) == chosen
    if "hidden" in case:
        assert cause.trial is None, "a GPU that was hidden on purpose is not tried"


def test_a_rule_of_last_resort_counts_only_where_no_other_finds_a_cause() -> None:
    unexplained = diagnosis.diagnose(evidence("cuinit_fails", "A_NEW_ONE"))
    assert [cause.cause_id for cause in unexplained.causes] == ["cuinit_fails"]
    explained = evidence("fabric_manager_not_running", "not installed")
    rule = diagnosis.get("cuinit_fails")
    assert rule is not None
    assert list(rule.matches(explained))
    diagnosed = diagnosis.diagnose(explained)
    assert [cause.cause_id for cause in (*diagnosed.causes, *diagnosed.folded)] == ["fabric_manager_not_running"]


def test_what_is_done_about_a_failing_gpu_names_the_others_or_nothing() -> None:
    rule = diagnosis.get("gpu_lost")
    assert rule is not None
    causes = {example.name: next(rule.causes(example.evidence)) for example in examples()[rule.id] if example.fires}
    assert {name: cause.confidence for name, cause in causes.items()} == {
        "by NVML": Confidence.PROVED,
        "one of two, by NVML": Confidence.PROVED,
        "when devices are created": Confidence.POSSIBLE,
        "one of two, not known which": Confidence.POSSIBLE,
        "in a log": Confidence.LIKELY,
    }
    others, reset = causes["one of two, by NVML"].fix[1:3]
    uuids = [gpu.uuid for gpu in example_with_gpus(2).nvml_devices]
    assert others.command == f"export CUDA_VISIBLE_DEVICES={','.join(uuids)}"
    assert "--gpu-reset -i 2 " in fix_line(reset)
    assert not any("export" in line for line in fix_lines(causes["by NVML"])), "there is no other GPU"
    assert not any("-i " in line for line in fix_lines(causes["one of two, not known which"])[1:])


def test_without_nvswitch_the_fabric_manager_is_no_likely_cause() -> None:
    rule = diagnosis.get("fabric_manager_not_running")
    assert rule is not None
    causes = {example.name: next(rule.causes(example.evidence)) for example in examples()[rule.id] if example.fires}
    for name in ("without NVSwitch", "without NVSwitch, in a container"):
        assert causes[name].confidence is Confidence.POSSIBLE
        assert "no NVSwitch is seen" in causes[name].cause
        assert not any("fabricmanager" in line for line in fix_lines(causes[name]))
    assert causes["no device file, and yet of a kind that is joined"].confidence is Confidence.LIKELY
    assert causes["not installed"].confidence is Confidence.PROVED


@pytest.mark.parametrize("probe", [TRACE, "discovery.logical_devices"])
@pytest.mark.parametrize(
    ("cause", "detail", "failed"),
    [
        (NoReading.INTERRUPTED, "stopped by SIGINT", False),
        (NoReading.TIMEOUT, f"not run: the deadline of 5 s {RUN_ENDED}", False),
        (NoReading.TIMEOUT, "no result within 60 s", True),
    ],
)
def test_the_end_of_the_run_is_no_fault_of_the_machine(probe: str, cause: NoReading, detail: str, failed: bool) -> None:
    hidden = example_with_gpus(2, environment=EnvironmentFacts({"CUDA_VISIBLE_DEVICES": "9"}))
    row = Row(probe, (), Broken(cause, detail), 0.0)
    diagnosed = diagnosis.diagnose(Evidence(hidden, rows=(row,)))
    assert (diagnosed.broken_at is not None) is failed
    assert "mask_hides_all" in [root_cause.cause_id for root_cause in (*diagnosed.causes, *diagnosed.folded)]


@pytest.mark.parametrize(("listed", "status"), [(0, "failed"), (1, "ok")])
def test_nvml_failed_only_where_tensorflow_lists_none_for_it(listed: int, status: str) -> None:
    facts = example_with_gpus(1, nvml=NvmlFacts("Unknown Error", None, None, ()))
    opened = ("libcuda.so.1", "libnvidia-ml.so.1", "libcudart.so.12")
    reading = trace.Reading(listed, None, opened, {}, ())
    steps = diagnosis.diagnose(Evidence(facts, rows=(Row(TRACE, (), Judged(), 0.0, reading),))).steps
    assert {step.stage: step.status for step in steps}[Stage.NVML] == status


def test_distributions_that_are_mixed_are_named_once_and_those_elsewhere_not() -> None:
    rule = diagnosis.get("distributions_mixed")
    assert rule is not None
    (cause,) = found(rule.id, evidence(rule.id, "a third elsewhere"))
    assert cause.cause.startswith("tensorflow 2.21.0 and tensorflow-cpu 2.21.0 install")


def test_a_version_that_is_not_known_is_not_told() -> None:
    rule = diagnosis.get("library_and_module_differ")
    assert rule is not None
    mismatch = evidence(rule.id, "NVML and cuInit")
    facts = replace(mismatch.facts, driver=replace(mismatch.facts.driver, libcuda_path="/usr/lib/libcuda.so.1"))
    (cause,) = rule.causes(Evidence(facts, rows=mismatch.rows))
    assert cause.confidence is Confidence.LIKELY
    assert cause.cause.endswith("libraries of another version, as the driver says")


def test_the_root_comes_before_its_symptom() -> None:
    reading = trace.read_log((), 1, None)
    log = (
        "W gpu_device.cc:2251] Cannot dlopen some GPU libraries. Skipping registering GPU devices...",
        "    tf.config.set_visible_devices(tf.config.list_physical_devices('GPU')[0], 'GPU')",
        "IndexError: list index out of range",
    )
    seen = Evidence(example_with_gpus(1), rows=(Row(TRACE, (), Judged(), 0.0, reading),), lines=log)
    causes = [cause.cause_id for cause in diagnosis.diagnose(seen).causes]
    assert causes == ["program_ran_elsewhere", "element_of_no_gpus"]


@pytest.mark.parametrize("file", ["/venv/sitecustomize.py", ""])
def test_what_python_sets_at_its_start_no_shell_can_unset(file: str) -> None:
    rule = next(rule for rule in RULES if rule.id == "mask_hides_all")
    facts = example_with_gpus(1, environment=EnvironmentFacts({MASK: "-1"}, {MASK: file}))
    (cause,) = rule.causes(Evidence(facts))
    assert cause.trial is None
    (line,) = fix_lines(cause)
    assert line.startswith(f"# take {MASK} out of {file or 'the sitecustomize.py'}")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param((1,), "", id="the only GPU of the job"),
        pytest.param((1, 2), "2", id="one of two GPUs of the job"),
        pytest.param((4, 5, 6, 7), "0 2 3", id="GPUs that the job sees by other numbers"),
        pytest.param(None, "0 2 3", id="no job"),
    ],
)
def test_a_gpu_of_another_job_is_not_offered(given: tuple[int, ...] | None, expected: str) -> None:
    facts = example_with_gpus(4, container=ContainerFacts(None, (), False, None, job_gpus=given))
    chosen = ChosenGpus(facts, Gpus(gpus_in_scope(facts)), Rows(()))
    action = chosen.without([chosen.gpus[1]])
    uuids = {gpu.uuid: str(gpu.index) for gpu in chosen.gpus}
    offered = [uuids[uuid] for uuid in ((action.change or {}).get(MASK) or "").split(",") if uuid]
    assert offered == expected.split()
    assert (action == NO_OTHER_GPU) is not bool(expected)
