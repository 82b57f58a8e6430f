"""Causes that a line of a log names by itself: they have names, and give way to a cause that explains the line."""

from __future__ import annotations

import pytest

from conftest import Gpudiag
from examples.facts import example_with_gpus
from gpudiag import causes
from gpudiag.cause import Evidence
from gpudiag.causes import messages
from gpudiag.model.diagnosis import Confidence, Diagnosis, Stage
from gpudiag.run.diagnosis import diagnose

BOTH = {
    "driver_library_not_opened",
    "library_not_opened",
    "module_not_built",
    "nccl_no_interface",
    "no_kernel_for_gpu",
    "nvml_missing",
}
"""One fault, which this machine's facts show, or a line of a log: both have one name."""


def diagnosed(*lines: str) -> Diagnosis:
    return diagnose(Evidence(example_with_gpus(1), lines=lines))


@pytest.mark.parametrize(
    ("line", "name", "stage"),
    [
        (
            'docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].',
            "no_device_driver",
            Stage.DRIVER_LIBRARY,
        ),
        ("cublas.cc: CUBLAS_STATUS_ALLOC_FAILED", "cublas_alloc_failed", Stage.FIRST_OP),
    ],
)
def test_a_line_that_names_its_fault_is_a_cause_with_the_name_of_the_message(
    line: str, name: str, stage: Stage
) -> None:
    (cause,) = diagnosed(line).causes
    assert (cause.cause_id, cause.stage, cause.confidence) == (name, stage, Confidence.LIKELY)
    assert cause.fix
    assert name in cause.explains
    assert causes.get(name) is messages.all_of_them()[name]


@pytest.mark.parametrize("line", ["TF-TRT Warning: Could not find TensorRT", "failed call to cuInit: something"])
def test_a_harmless_line_and_one_without_a_fix_of_its_own_are_no_causes(line: str) -> None:
    assert not {cause.cause_id for cause in diagnosed(line).causes} & messages.all_of_them().keys()


def test_a_cause_that_explains_the_line_is_named_alone() -> None:
    line = "Could not create cudnn handle: CUDNN_STATUS_NOT_INITIALIZED"
    evidence = Evidence(example_with_gpus(1), lines=(line,))
    assert [known.id for known, _ in messages.matches(evidence.program, evidence.origin)] == ["cudnn_not_initialized"]
    (cause,) = diagnosed(line).causes
    assert cause.cause_id == "no_room_for_libraries"
    assert "cudnn_not_initialized" in cause.explains


def test_names_of_messages_are_those_of_files_only_for_one_fault() -> None:
    assert messages.all_of_them().keys() & causes.names().keys() == BOTH


def test_each_is_explained(gpudiag: Gpudiag) -> None:
    printed = gpudiag("explain", "xid_79").stdout
    assert "xid_79" in printed
    assert "https://" in printed
    assert "its own name now" in gpudiag("explain", "named_in_log").stderr
    assert "xid_79" in gpudiag("explain", "xid_799").stderr
