"""The diagnosis at the top of every format."""

from __future__ import annotations

import msgspec
import pytest

from gpudiag.fix import run, unset
from gpudiag.model.diagnosis import Confidence, Diagnosis, FixAttempt, RootCause, Stage, Step, StepStatus, TrialOutcome
from gpudiag.model.report import Report
from gpudiag.report import render
from reports import GPUS, passed, report, row

CAUSE = RootCause(
    "mask_hides_all",
    Stage.DRIVER,
    Confidence.PROVED,
    "CUDA_VISIBLE_DEVICES='7' hides all GPUs of this machine",
    ("NVML reports 2 GPUs; valid indices: 0 to 1",),
    (unset("CUDA_VISIBLE_DEVICES"),),
    "https://docs.nvidia.com/cuda/",
    FixAttempt({"CUDA_VISIBLE_DEVICES": None}, TrialOutcome.WORKS, "NVIDIA A100"),
)
STEPS = (
    Step(Stage.PACKAGE, StepStatus.OK),
    Step(Stage.DRIVER, StepStatus.FAILED, "no device"),
    Step(Stage.NVML, StepStatus.NOT_REACHED),
)
FORMATS = pytest.mark.parametrize("format_", ["table", "markdown", "junit"])


def diagnosed(diagnosis: Diagnosis, *, gpus: bool = True) -> Report:
    made = report(row("host.gpus", passed("2 of 2 right")), gpus=GPUS if gpus else ())
    return msgspec.structs.replace(made, diagnosis=diagnosis)


def flat(made: Report, format_: str) -> str:
    return " ".join(render(made, format_, width=100, color=False).replace("\\", "").split())


@FORMATS
def test_the_cause_comes_before_the_probes(format_: str) -> None:
    text = flat(diagnosed(Diagnosis(STEPS, (CAUSE,))), format_)
    for said in ("GPU not used because CUDA", "valid indices", "unset CUDA_VISIBLE_DEVICES", "works (NVIDIA A100)"):
        assert said in text.replace("&#x27;", "'"), said
    assert text.index("GPU not used because") < text.index("2 of 2 right")


def test_what_people_copy_is_on_one_line_whatever_the_width() -> None:
    command = f"export LD_LIBRARY_PATH={'/a/long/way' * 12}:$LD_LIBRARY_PATH"
    found = Diagnosis(STEPS, (msgspec.structs.replace(CAUSE, fix=(run(command),), url=f"https://{'x' * 90}.org"),))
    lines = render(diagnosed(found), "table", width=60, color=False, verbose=False).splitlines()
    assert f"  fix       {command}" in lines
    assert f"  see       https://{'x' * 90}.org" in lines


def test_what_follows_from_it_and_harmless_lines_are_told_apart() -> None:
    later = msgspec.structs.replace(CAUSE, cause_id="later", cause="the second fault", stage=Stage.MEMORY)
    found = Diagnosis(STEPS, (CAUSE,), (later,), ("a line: it is harmless",), ("another: it is about the loader",))
    text = flat(diagnosed(found), "table")
    assert "then the second fault (later)" in text
    assert text.count("unset CUDA_VISIBLE_DEVICES") == 1, "both causes have the same fix"
    assert "harmless a line: it is harmless" in text
    assert "means another: it is about the loader" in text
    assert "cuInit FAILED" in text
    assert "not reached" not in text


def test_a_failure_that_no_rule_knows_is_said_to_be_one() -> None:
    assert "GPU not used, for an unknown reason: cuInit failed: no device" in flat(diagnosed(Diagnosis(STEPS)), "table")


def test_without_a_gpu_there_is_nothing_to_mend() -> None:
    text = flat(diagnosed(Diagnosis(STEPS), gpus=False), "table")
    assert "No NVIDIA GPU in this machine: nothing to fix" in text
    assert "FAILED" not in text


def test_where_all_is_well_there_is_no_diagnosis() -> None:
    assert "GPU not used" not in flat(diagnosed(Diagnosis(STEPS[:1])), "table")
    used = flat(diagnosed(Diagnosis(STEPS[:1], (CAUSE,))), "table")
    assert "Configuration problems" in used


@pytest.mark.parametrize("format_", ["table", "markdown"])
def test_harmless_lines_of_a_log_are_told_where_all_is_well(format_: str) -> None:
    made = diagnosed(Diagnosis(STEPS[:1], harmless=("a line: it is harmless",)))
    assert "harmless" not in flat(made, format_)
    text = flat(msgspec.structs.replace(made, lines=("a line",)), format_)
    assert "The log shows no fault" in text
    assert "a line: it is harmless" in text


def test_a_gpu_that_computes_wrong_is_not_said_to_be_unused() -> None:
    steps = (Step(Stage.PACKAGE, StepStatus.OK), Step(Stage.FIRST_OP, StepStatus.FAILED, "a product is wrong"))
    wrong = msgspec.structs.replace(CAUSE, stage=Stage.FIRST_OP, cause="GPU 1 computes wrong results")
    assert "Operations on the GPU fail: GPU 1 computes wrong" in flat(diagnosed(Diagnosis(steps, (wrong,))), "table")
    assert "Operations on the GPU fail, for an unknown reason" in flat(diagnosed(Diagnosis(steps)), "table")
