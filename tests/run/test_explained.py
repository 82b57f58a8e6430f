"""Rows that broke for a proved cause: the verdict is FAIL, and that of rows that broke for another reason BROKEN."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from examples.facts import example_with_gpus
from gpudiag.fix import note
from gpudiag.model import codec
from gpudiag.model.diagnosis import Confidence, Diagnosis, RootCause, Stage, Step, StepStatus
from gpudiag.model.report import Broken, Finding, NoReading, Report, Row, Severity, Verdict, conclude
from gpudiag.run.explained import with_reasons
from gpudiag.run.rejudging import rejudge
from reports import CAP_IGNORED, GPUS, passed, report, row

RECORDED = Path(__file__).parents[1] / "recorded" / "corpus"
REFUSED = "Unknown flag in XLA_FLAGS: --xla_no_such_flag"
FLAGS = RootCause("flags_refused", Stage.CONTEXT, Confidence.PROVED, "refused", (), (), "", explains=("flags_refused",))
EXITED = Broken(NoReading.NO_RESULT, "exited with status 1 without a result")
ABORTED = Broken(NoReading.SIGNAL, "killed by SIGABRT")


def of(cause: RootCause, *rows: Row, broken_at: Stage = Stage.CONTEXT) -> Report:
    diagnosis = Diagnosis((Step(broken_at, StepStatus.FAILED),), (cause,))
    found = report(*with_reasons(rows, diagnosis), gpus=GPUS, facts=example_with_gpus(2))
    return conclude(msgspec.structs.replace(found, diagnosis=diagnosis))


def test_a_proved_cause_that_explains_every_broken_row_is_a_failure() -> None:
    rows = (
        row("discovery.first_op", EXITED, log=(REFUSED,)),
        row("memory.growth", EXITED),
        row("host.driver", passed()),
    )
    done = of(FLAGS, *rows)
    assert (done.verdict, done.exit_code) == (Verdict.FAIL, 1)
    assert [row.probe for row in done.explained] == ["discovery.first_op", "memory.growth"]
    assert codec.decode(codec.encode(done), "test") == done


@pytest.mark.parametrize(
    "other",
    [
        row("memory.growth", ABORTED),
        row("memory.growth", EXITED, log=("2026-01-01 00:00:00.1: F a.cc:1] Check failed: ok",)),
        row("memory.growth", Broken(NoReading.BAD_RESULT, "its reading is malformed"), log=(REFUSED,)),
        row("memory.growth", Broken(NoReading.TIMEOUT, "no result within 60 s")),
    ],
)
def test_another_reason_stays_broken(other: Row) -> None:
    done = of(FLAGS, row("discovery.first_op", EXITED, log=(REFUSED,)), other)
    assert (done.verdict, done.exit_code) == (Verdict.BROKEN, 3)
    assert [row.probe for row in done.explained] == ["discovery.first_op"]
    assert (
        conclude(msgspec.structs.replace(done, rows=(*done.rows, row("a.b", passed("", CAP_IGNORED))))).exit_code == 1
    )


@pytest.mark.parametrize(
    "cause",
    [
        msgspec.structs.replace(FLAGS, confidence=Confidence.LIKELY),
        msgspec.structs.replace(FLAGS, stage=Stage.CONFIGURATION),
        msgspec.structs.replace(FLAGS, explains=("no_memory_pools",)),
    ],
)
def test_what_is_not_proved_or_is_about_something_else_explains_nothing(cause: RootCause) -> None:
    assert of(cause, row("discovery.first_op", EXITED, log=(REFUSED,))).verdict is Verdict.BROKEN


def test_a_proved_fault_of_the_import_explains_how_it_ended() -> None:
    illegal = Broken(NoReading.SIGNAL, "killed by SIGILL")
    cause = RootCause("cpu_lacks_instructions", Stage.PACKAGE, Confidence.PROVED, "no AVX", (), (), "")
    rows = (row("discovery.trace", illegal), row("placement.log", illegal))
    assert of(cause, *rows, broken_at=Stage.PACKAGE).verdict is Verdict.FAIL
    assert of(cause, *rows, broken_at=Stage.DRIVER).verdict is Verdict.BROKEN


def test_a_reason_that_no_proved_cause_of_the_report_has_is_not_believed() -> None:
    explained = msgspec.structs.replace(EXITED, explained_by="flags_refused")
    found = report(row("discovery.first_op", explained), gpus=GPUS)
    assert (found.verdict, found.explained) == (Verdict.BROKEN, ())


LOST = RootCause(
    "gpu_fails",
    Stage.CONTEXT,
    Confidence.PROVED,
    "GPU 1 fails",
    (),
    (),
    "",
    gpus=(GPUS[1].pci_bus_id,),
    explains=("cuda_unknown",),
)
UNKNOWN = Finding("not_held", Severity.FAIL, "it met CUDA_ERROR_UNKNOWN: unknown error", (note("look"),))
ON_THE_FIRST, ON_BOTH = (GPUS[0].uuid,), tuple(gpu.uuid for gpu in GPUS)


@pytest.mark.parametrize(
    ("finding", "devices", "cause"),
    [
        (UNKNOWN, ON_BOTH, "gpu_fails"),
        (msgspec.structs.replace(UNKNOWN, severity=Severity.NOTE), ON_BOTH, ""),
        (msgspec.structs.replace(UNKNOWN, message="it met CUDA_ERROR_NO_DEVICE"), ON_BOTH, ""),
        (UNKNOWN, ON_THE_FIRST, ""),
    ],
)
def test_a_finding_that_names_the_fault_of_a_proved_cause_has_its_fix_there(
    finding: Finding, devices: tuple[str, ...], cause: str
) -> None:
    before = msgspec.structs.replace(row("memory.shared_gpu", passed("", finding)), devices=devices)
    (after,) = with_reasons((before,), Diagnosis(causes=(LOST,)), GPUS)
    assert [(found.cause, found.fix) for found in after.findings] == [(cause, () if cause else finding.fix)]


def test_a_process_apart_ends_as_the_probe_itself() -> None:
    apart = Broken(NoReading.EXCEPTION, f"RuntimeError: in a process apart: {EXITED.detail}")
    done = of(FLAGS, row("discovery.first_op", EXITED, log=(REFUSED,)), row("memory.capacity", apart))
    assert [row.probe for row in done.explained] == ["discovery.first_op", "memory.capacity"]


@pytest.mark.parametrize(
    ("figures", "gpus"),
    [
        ({"device": "GPU:0", "pci_bus_id": GPUS[1].pci_bus_id}, {1}),  # the mask of a process gives it another number
        ({"device": "GPU:0"}, {0}),
        ({"source": "memory", "target": "GPU:1"}, {1}),
        ({"source": "GPU:1", "target": "GPU:0"}, {0, 1}),
        ({"where": "2 GPUs"}, set()),
    ],
)
def test_the_gpus_of_a_finding(figures: dict[str, str], gpus: set[int]) -> None:
    finding = msgspec.structs.replace(UNKNOWN, figures=figures)
    of_both = msgspec.structs.replace(row("libraries.copies", passed("", finding)), devices=ON_BOTH)
    found = report(of_both, gpus=GPUS, facts=example_with_gpus(2))
    assert found.gpus_of(of_both, finding) == {GPUS[number].pci_bus_id.lower() for number in gpus}
    unfit = msgspec.structs.replace(found, diagnosis=Diagnosis(causes=(msgspec.structs.replace(LOST, unfit=True),)))
    assert unfit.failed_gpus == {GPUS[1].pci_bus_id.lower()} | ({GPUS[0].pci_bus_id.lower()} if gpus == {0} else set())


@pytest.mark.parametrize(
    ("machine", "verdict"),
    [
        ("06-the-directml-plug-in-breaks-the-import", Verdict.FAIL),
        ("58-tf-gpu-allocator-cuda-malloc-async-where-unsupported", Verdict.FAIL),
        ("123-protobuf-is-too-old", Verdict.FAIL),
        ("124-ml-dtypes-is-of-another-release-than-tensorflow-needs", Verdict.BROKEN),
        ("137-xla-flags-has-a-flag-that-this-tensorflow-does-not-know", Verdict.FAIL),
        ("138-tf-xla-flags-has-a-flag-that-is-none-of-its-own", Verdict.FAIL),
    ],
)
def test_recorded_machines(machine: str, verdict: Verdict) -> None:
    before = codec.load(RECORDED / f"{machine}.json")
    done = rejudge(before)
    assert done.verdict is verdict
    assert all(row in done.explained for row in done.rows if isinstance(row.outcome, Broken)) is (
        verdict is Verdict.FAIL
    )
