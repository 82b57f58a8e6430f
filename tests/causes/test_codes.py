"""Whatever the driver or a library of NVIDIA's answers, a report says which code, of which GPU, and what it means."""

from __future__ import annotations

import errno
import json
import os
import re
import sysconfig
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from conftest import Gpudiag
from examples.facts import example_with_gpus
from gpudiag.cause import Evidence
from gpudiag.knowledge.codes import MESSAGES, code_in, explained, meanings
from gpudiag.knowledge.messages import xid
from gpudiag.model import codec
from gpudiag.model.diagnosis import Stage
from gpudiag.model.report import Broken, Finding, Judged, NoReading, Row
from gpudiag.model.visibility import gpus_in_scope
from gpudiag.probe import EndedReading, GpuFaults, Raised
from gpudiag.report import FORMATS, render
from gpudiag.run.diagnosis import diagnose
from withheld import concluded

CODES = sorted(
    {
        text
        for message in MESSAGES
        for text in message.texts
        if re.fullmatch(r"[A-Za-z]+_[A-Z0-9_]+|(?:nccl|cudaError)[A-Z]\w+", text)
    }
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
        outcome: Judged | Broken = Broken(NoReading.EXCEPTION, f"InternalError: the call failed: {code}")
    elif end == "it raises":
        outcome = Judged((GpuFaults.operation_failed.found(error=f"InternalError: the call failed: {code}"),))
    else:
        outcome = Judged((GpuFaults.process_ended.found(error=f"the call failed: {code}", end="killed by SIGABRT"),))
    return Row(probe, tuple(gpu.uuid for gpu in given), outcome, 0.0, log=log)


HEADERS = {
    "cuda/include/cuda.h": "CUDA_ERROR_",
    "cuda/include/driver_types.h": "cudaError",
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
    assert {
        name for name in names - no_error if not meanings(f"x.cc: the call failed: {name}: words").get(name)
    } == set()


def test_each_result_of_nccl_has_its_meaning() -> None:
    """``ncclResult_t`` of NCCL 2.31, src/nccl.h.in:44; no wheel has the header. InProgress is no error."""
    names = "UnhandledCudaError SystemError InternalError InvalidArgument InvalidUsage RemoteError Timeout"
    assert {name for name in names.split() if not meanings(f"nccl{name}")} == set()


def test_each_xid_of_the_open_kernel_modules_has_its_meaning() -> None:
    """Numbers of src/common/sdk/nvidia/inc/nverror.h, release 595.45.04.

    Without those that are no fault (14 is for tests, 23 tells that reporting begins), reserved (91, 152, 153), or of
    the power supply and without a published meaning (162 to 165).
    """
    listed = {13, 14, 16, *range(19, 24), *range(27, 37), *range(39, 46), 47, 48, *range(58, 66), *range(68, 106)}
    listed |= {108, 110, *range(119, 177)}
    unnamed = {14, 23, 91, 152, 153, *range(162, 166)}
    assert {number for number in listed - unnamed if str(number) not in xid.BY_NUMBER} == set()
    assert meanings("NVRM: Xid (PCI:0000:01:00): 79, pid=7")["Xid 79"].endswith("fallen off the PCIe bus")


def test_each_errno_has_the_words_of_the_system() -> None:
    assert {name: meanings(f"open: {name}") for name in errno.errorcode.values()} == {
        name: {name: os.strerror(number)} for number, name in errno.errorcode.items()
    }


def test_a_meaning_that_is_there_is_not_repeated() -> None:
    text = explained("cuInit: CUDA_ERROR_NO_DEVICE")
    assert text.startswith("cuInit: CUDA_ERROR_NO_DEVICE; CUDA_ERROR_NO_DEVICE: CUDA shows this process no GPU")
    assert explained(text) == text
    assert meanings("EVERY ERROR of ncclCommInitRank") == {}


@pytest.mark.parametrize("end", ENDS)
def test_each_code_has_a_head_that_names_it(end: str) -> None:
    """Every code in one of the probes; in the others one code of each message, as causes ask for messages."""
    assert len(CODES) > 250
    facts = example_with_gpus(2)
    of_messages = {id(event.message): code for code in CODES if (event := code_in(code)) is not None}
    for number, (probe, stages) in enumerate(PROBES.items()):
        for code in of_messages.values() if number else CODES:
            found = diagnose(Evidence(facts, gpus_in_scope(facts), (row_of(probe, code, end),)))
            assert found.failed == ()
            assert found.causes, (probe, code)
            head = found.causes[0]
            assert any(code in text for text in (head.cause, *head.evidence)), (probe, code)
            if head.cause_id == "probe_fails":
                assert head.stage in stages, (probe, code)
                event = code_in(code)
                assert event is not None
                assert event.message.meaning.split("{")[0] in head.cause, (probe, code)
                assert "GPU 1" in head.cause


def shown_alone(text: str, format_: str) -> list[str]:
    """Return the parts of a rendered report that people see without the others."""
    if format_ == "junit":
        return [f"{element.get('message', '')}\n{element.text or ''}" for element in ET.fromstring(text).iter()]
    if format_ == "github":
        folded, _, annotations = text.partition("::endgroup::")
        return [folded, *annotations.replace("%3A", ":").replace("%2C", ",").splitlines()]
    if format_ == "codequality":
        return [issue["description"] for issue in json.loads(text)]
    return [re.sub(r"\\(?=[_\[\]<>|*`~&$])", "", text) if format_ == "markdown" else text]


@pytest.mark.parametrize("format_", FORMATS)
def test_no_format_shows_a_code_without_its_meaning(format_: str) -> None:
    """The first row's code is explained by the head; those of the others must be by the format itself."""
    facts = example_with_gpus(2)
    codes = ["CUDA_ERROR_ECC_UNCORRECTABLE", "CUDNN_STATUS_MAPPING_ERROR", "CUBLAS_STATUS_ARCH_MISMATCH", "ENOSPC"]
    codes += ["CUFFT_EXEC_FAILED", "CUSPARSE_STATUS_ZERO_PIVOT", "ncclRemoteError", "cudaErrorInvalidSymbol", "Xid 79"]
    rows = tuple(
        row_of(probe, code, end) for code, probe, end in zip(codes, list(PROBES) * 3, list(ENDS) * 3, strict=False)
    )
    text = render(concluded(Evidence(facts, gpus_in_scope(facts), rows)), format_, width=120, color=False)
    for part in shown_alone(text, format_):
        assert meanings(part) == {}
    assert format_ == "prometheus" or sum(code in text for code in codes) == len(codes)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("probe", "call", "stage", "code"),
    [
        ("discovery.first_op", "cuMemcpyHtoDAsync_v2:700", Stage.FIRST_OP, "CUDA_ERROR_ILLEGAL_ADDRESS"),
        ("libraries.cudnn", "cudnnCreate:1001", Stage.FIRST_OP, "CUDNN_STATUS_NOT_INITIALIZED"),
        ("libraries.cublas", "cublasCreate_v2:13", Stage.FIRST_OP, "CUBLAS_STATUS_EXECUTION_FAILED"),
        ("libraries.nccl", "ncclCommInitRank:3", Stage.FIRST_OP, "NCCL: internal error"),
        ("discovery.first_op", "nvmlInit_v2:999", Stage.NVML, "NVML_ERROR_UNKNOWN"),
    ],
)
def test_a_call_that_fails_gives_a_head_with_its_code_at_its_stage(
    probe: str, call: str, stage: Stage, code: str, gpudiag: Gpudiag
) -> None:
    done = gpudiag("check", probe, *gpudiag.simulated("2", (f"call_fails={call}",)), "--format", "json", "-q")
    report = codec.decode(done.stdout, done.stderr)
    head = report.diagnosis.causes[0]
    assert (head.stage, code in head.cause) == (stage, True), head
    assert meanings(render(report, "table", width=200, color=False)) == {}


def test_a_code_is_not_cut_off() -> None:
    words = "Failed copying input tensor from one device to another one " * 4
    code = "CUDA_ERROR_ILLEGAL_ADDRESS"
    for message in (f"{words}: {code}: an access", f"{words[:180]} {code}", f"{code} {words}"):
        assert len(brief := Raised("InternalError", message).brief) <= 200
        assert code in brief
    assert Raised("E", words).brief == f"E: {words}"[:199] + "…"


def test_an_error_without_a_code_is_named_by_its_probe() -> None:
    facts = example_with_gpus(2)
    row = Row("memory.capacity", (gpus_in_scope(facts)[1].uuid,), Broken(NoReading.NO_RESULT, "no result"), 0.0)
    head = diagnose(Evidence(facts, gpus_in_scope(facts), (row,))).causes[0]
    assert (head.cause_id, head.stage) == ("probe_fails", Stage.MEMORY)
    assert "GPU 1 fails in memory.capacity" in head.cause


def test_a_process_that_ended_after_an_error_of_the_gpu_has_a_reading() -> None:
    reading = EndedReading(
        given=("0000:01:00.0",), seen=1, operation_raised="CUDA_ERROR_UNKNOWN", process_end="SIGABRT"
    )
    assert [finding.kind for finding in reading.unusable() if isinstance(finding, Finding)] == ["process_ended"]
