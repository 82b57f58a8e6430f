"""Whatever the driver or a library of NVIDIA's answers, a report says which code, of which GPU, and what it means."""

from __future__ import annotations

import re
import sysconfig
from pathlib import Path

import pytest

from examples.facts import example_with_gpus
from gpudiag.cause import Evidence
from gpudiag.knowledge.codes import MESSAGES, code_in
from gpudiag.model.diagnosis import Stage
from gpudiag.model.report import Broken, Cause, Finding, Judged, Row
from gpudiag.model.visibility import gpus_in_scope
from gpudiag.probe import EndedReading, GpuFaults
from gpudiag.run.diagnosis import diagnose

CODES = sorted(
    {text for message in MESSAGES for text in message.texts if re.fullmatch(r"[A-Za-z]+_[A-Z0-9_]+|nccl[A-Z]\w+", text)}
)
PROBES = {
    "discovery.logical_devices": (Stage.CONTEXT, Stage.FIRST_OP, Stage.MEMORY),
    "libraries.copies": (Stage.FIRST_OP,),
    "distribution.reduction": (Stage.FIRST_OP,),
    "memory.allocator": (Stage.MEMORY,),
}
"""Probes that a call fails in, to the stages at which that may be."""
ENDS = ("it raises", "its process is ended", "it breaks")


def row_of(probe: str, code: str, end: str) -> Row:
    facts = example_with_gpus(2)
    given = gpus_in_scope(facts)[1:]
    log = (f"E0000 00:00:1.2 7 cuda_executor.cc:9] the call failed: {code}: words of the library",)
    if end == "it breaks":
        outcome: Judged | Broken = Broken(Cause.EXCEPTION, f"InternalError: the call failed: {code}")
    elif end == "it raises":
        outcome = Judged((GpuFaults.operation_failed.found(error=f"InternalError: the call failed: {code}"),))
    else:
        outcome = Judged((GpuFaults.process_ended.found(error=f"the call failed: {code}", end="killed by SIGABRT"),))
    return Row(probe, tuple(gpu.uuid for gpu in given), outcome, 0.0, log=log)


HEADERS = {
    "cuda/include/cuda.h": "CUDA_ERROR_",
    "cudnn/include/cudnn_graph.h": "CUDNN_STATUS_",
    "cuda/include/cublas_api.h": "CUBLAS_STATUS_",
    "cuda/include/cusolver_common.h": "CUSOLVER_STATUS_",
    "cuda/include/cufft.h": "CUFFT_(?!COMPATIBILITY|[CRDZ]2)",
    "cuda/include/cusparse.h": "CUSPARSE_STATUS_",
    "cuda/nvml/include/nvml.h": "NVML_ERROR_",
}


@pytest.mark.parametrize("header", HEADERS)
def test_each_code_of_a_header_has_its_meaning(header: str) -> None:
    """The headers are those of TensorFlow's own wheel."""
    file = Path(sysconfig.get_path("purelib"), "tensorflow/include/third_party/gpus", header)
    names = set(re.findall(rf"\b({HEADERS[header]}\w+)\s*=", file.read_text()))
    assert len(names) >= 10
    no_error = {name for name in names if name.endswith(("_SUCCESS", "CUDNN_STATUS_DEPRECATED"))}
    assert {name for name in names - no_error if code_in(f"x.cc: the call failed: {name}: words") is None} == set()


@pytest.mark.parametrize("probe", PROBES)
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize(
    "code",
    [pytest.param(code, marks=() if number % 24 == 0 else pytest.mark.slow) for number, code in enumerate(CODES)],
)
def test_a_code_has_a_head_that_names_it(code: str, end: str, probe: str) -> None:
    row = row_of(probe, code, end)
    found = diagnose(Evidence(example_with_gpus(2), gpus_in_scope(example_with_gpus(2)), (row,)))
    assert found.failed == ()
    assert found.causes, "there is a head"
    head = found.causes[0]
    assert head.stage in (*PROBES[probe], *({head.stage} if head.cause_id != "probe_fails" else ()))
    assert any(code in text for text in (head.cause, *head.evidence))
    if head.cause_id == "probe_fails":
        event = code_in(code)
        assert event is not None
        assert event.message.meaning.split("{")[0] in head.cause
        assert "GPU 1" in head.cause


def test_an_error_without_a_code_is_named_by_its_probe() -> None:
    facts = example_with_gpus(2)
    row = Row("memory.capacity", (gpus_in_scope(facts)[1].uuid,), Broken(Cause.NO_RESULT, "no result"), 0.0)
    head = diagnose(Evidence(facts, gpus_in_scope(facts), (row,))).causes[0]
    assert (head.cause_id, head.stage) == ("probe_fails", Stage.MEMORY)
    assert "memory.capacity fails on GPU 1" in head.cause


def test_a_process_that_ended_after_an_error_of_the_gpu_has_a_reading() -> None:
    reading = EndedReading(
        given=("0000:01:00.0",), seen=1, operation_raised="CUDA_ERROR_UNKNOWN", process_end="SIGABRT"
    )
    assert [finding.kind for finding in reading.unusable() if isinstance(finding, Finding)] == ["process_ended"]
