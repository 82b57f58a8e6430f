"""Examples of causes: what the probes of NVIDIA's libraries found."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType
from typing import Any

from examples import Example
from examples.machines import example_evidence, example_facts
from gpudiag.cause import Evidence
from gpudiag.model.facts import CallFacts, EnvironmentFacts, Facts, TimedCall
from gpudiag.model.report import Broken, Finding, Judged, NoReading, Row, Severity
from gpudiag.model.visibility import gpus_in_scope
from gpudiag.probe import MIB, EndedReading, Raised
from gpudiag.probes.comparison import Check
from gpudiag.probes.libraries import (
    copies,
    cublas,
    cudnn,
    cufft,
    cusolver,
    cusparse,
    mixed_precision,
    reproducible,
)

_CUDNN = "E0000 00:00:1.2 7 cuda_dnn.cc:466] Could not create cudnn handle: CUDNN_STATUS_NOT_INITIALIZED"
_CUBLAS = "E0000 00:00:1.2 7 cuda_blas.cc:196] failed to create cublas handle: the resource allocation failed"
_CUFFT = "E0000 00:00:1.2 7 cuda_fft.cc:239] Failed to create cuFFT batched plan: 5"
_CUSOLVER = (
    "F0000 00:00:1.2 7 cuda_solvers.cc:111] Check failed: cusolverDnCreate(&cusolver_dn_handle) == "
    "CUSOLVER_STATUS_SUCCESS Failed to create cuSolverDN instance."
)
_CUSPARSE = (
    "tensorflow/core/util/cuda_sparse.cc:100 (cusparseCreate(&cusparse_handle_)): cuSparse call failed with status "
    "CUSPARSE_STATUS_NOT_INITIALIZED"
)
_TOO_OLD = "E0000 00:00:1.2 7 cuda_dnn.cc:9] Loaded runtime CuDNN library: 9.1.0 but source was compiled with: 9.3.0."
_FAILED = Check("a product", "GPU:1", raised=Raised("InternalError", "No blas support for stream"))
_STRAY = Check(
    "a product", "GPU:1", raised=Raised("InternalError", "CUDA error: CUDA_ERROR_ILLEGAL_ADDRESS: an illegal")
)
_RIGHT = Check("a product", "GPU:0", "GPU:0", 1e-7, 1e-5)
_WRONG = Check("a product", "GPU:1", "GPU:1", 0.5, 1e-5)
_WRONG_TOO = Check("a product", "GPU:0", "GPU:0", 0.5, 1e-5)


def _row(probe: Any, facts: Facts, log: tuple[str, ...], **fields: Any) -> Row:
    """Return the row that this reading of a probe of libraries comes to on two GPUs."""
    made = {f"GPU:{number}": device.pci_bus_id for number, device in enumerate(facts.nvml_devices)}
    reading = probe.Reading(**{"made": made, **fields}, given=tuple(made.values()), seen=len(made))
    found = tuple(finding for finding in probe.judge(reading) if isinstance(finding, Finding))
    return Row(f"libraries.{probe.__name__.rpartition('.')[2]}", (), Judged(found), 0.0, log=log)


def _machine(*probes: tuple[ModuleType, tuple[str, ...], tuple[Check, ...]], **variables: str) -> Evidence:
    facts = example_facts(2, environment=EnvironmentFacts(variables))
    rows = (_row(probe, facts, log, checks=checks) for probe, log, checks in probes)
    return example_evidence(facts, *rows, listed=2)


def _ended() -> Evidence:
    facts = example_facts(2)
    row = _row(cusolver, facts, (_CUSOLVER,), checks=(), crashed="killed by SIGABRT")
    return example_evidence(facts, row, listed=2)


def _copied(*ways: tuple[str, str], wrong: int = 1, rounds: int = 0) -> Evidence:
    facts = example_facts(2)
    copied = tuple(copies.DeviceCopy(source, target, MIB, wrong) for source, target in ways)
    sent = (copies.Rounds("GPU:1", 250, rounds),)
    return example_evidence(facts, _row(copies, facts, (), copies=copied, rounds=sent), listed=2)


def _hung(probe: Any, what: str) -> Evidence:
    facts = example_facts(2)
    given = tuple(device.pci_bus_id for device in facts.nvml_devices)
    reading = EndedReading(given=given, seen=2, operation_raised=what, hung=True)
    found = tuple(finding for finding in reading.unusable() if isinstance(finding, Finding))
    row = Row(f"libraries.{probe.__name__.rpartition('.')[2]}", (), Judged(found), 0.0)
    return example_evidence(facts, row, listed=2)


def _waits(call: str, probe: str) -> Evidence:
    hung = TimedCall(call, None, waited_s=35.2, probe=probe, file=call if "/" in call else "")
    return example_evidence(example_facts(2, calls=CallFacts((hung,))), listed=2)


def _without_keras(package: str, lacks: str, **variables: str) -> Evidence:
    facts = example_facts(2, environment=EnvironmentFacts(variables))
    raised = Raised("ModuleNotFoundError", f"No module named '{lacks}'")
    row = _row(mixed_precision, facts, (), checks=(), package=package, raised=raised)
    return example_evidence(facts, row, listed=2)


def _unexplained(outcome: Judged | Broken, *log: str) -> Evidence:
    facts = example_facts(2)
    row = Row("memory.allocator", (gpus_in_scope(facts)[1].uuid,), outcome, 0.0, log=log)
    return replace(example_evidence(facts, row, listed=2), gpus=gpus_in_scope(facts))


_LIMIT = "E0000 00:00:1.2 7 cuda_executor.cc:9] failed to set a limit: CUDA_ERROR_UNSUPPORTED_LIMIT: limit"
_CRASHED = Broken(NoReading.SIGNAL, "killed by SIGABRT")

EXAMPLES: dict[str, tuple[Example, ...]] = {
    "probe_fails": (
        Example("a code in the log", _unexplained(_CRASHED, _LIMIT)),
        Example("no code", _unexplained(_CRASHED)),
        Example("a finding", _unexplained(Judged((Finding("raised", Severity.FAIL, "raised CUDA_ERROR_ASSERT"),)))),
        Example("a warning", _unexplained(Judged((Finding("slow", Severity.WARNING, "slow"),))), fires=False),
        Example("gpudiag had no time for it", _unexplained(Broken(NoReading.BUSY, "no time")), fires=False),
    ),
    "library_fails": (
        Example("cuDNN", _machine((cudnn, (_CUDNN,), (_FAILED,)))),
        Example("cuDNN, and a path of the user's", _machine((cudnn, (_CUDNN,), (_FAILED,)), LD_LIBRARY_PATH="/opt")),
        Example("cuBLAS", _machine((cublas, (_CUBLAS,), (_RIGHT, _FAILED)))),
        Example("cuFFT, by its number", _machine((cufft, (_CUFFT,), (_FAILED,)))),
        Example("cuSOLVER, whose process ended", _ended()),
        Example("cuSPARSE", _machine((cusparse, (_CUSPARSE,), (_FAILED,)))),
        Example("no status in the log", _machine((cudnn, (), (_FAILED,)))),
        Example("cuDNN, two at once", _machine((cudnn, (_CUDNN,), (_FAILED,)), (cufft, (_CUFFT,), (_FAILED,)))),
        Example("cuDNN is too old", _machine((cudnn, (_TOO_OLD,), (_FAILED,))), fires=False),
        Example("all right", _machine((cudnn, (_CUDNN,), (_RIGHT,))), fires=False),
        Example("a wrong result", _machine((cudnn, (), (_WRONG,))), fires=False),
    ),
    "library_hangs": (
        Example("a convolution", _hung(cudnn, "convolution, float32 on GPU:0 did not return within 120 s")),
        Example("which library is not known", _hung(reproducible, "a product on GPU:0 did not return within 60 s")),
        Example("a call in a probe", _waits("cudnnCreate", "libraries.cudnn")),
        Example("a file that is locked", _waits("flock on /home/someone/x", "libraries.cublas")),
        Example("a call of the driver", _waits("cuMemAlloc", "memory.growth"), fires=False),
        Example("all right", _machine((cudnn, (), (_RIGHT,))), fires=False),
    ),
    "work_on_gpu_fails": (
        Example("one of two GPUs", _machine((cublas, (), (_RIGHT, _STRAY)), (cudnn, (), (_STRAY,)))),
        Example("the library's own status", _machine((cudnn, (_CUDNN,), (_FAILED,))), fires=False),
    ),
    "keras_not_imported": (
        Example("the backend", _without_keras("keras", "torch", KERAS_BACKEND="torch")),
        Example("Keras 2", _without_keras("tf_keras", "tf_keras", TF_USE_LEGACY_KERAS="1")),
        Example("a package of Keras'", _without_keras("keras", "optree")),
        Example("Keras is there", _machine((mixed_precision, (), (_RIGHT,))), fires=False),
    ),
    "library_computes_wrong": (
        Example("one of two GPUs", _machine((cublas, (), (_RIGHT, _WRONG)))),
        Example("both", _machine((cublas, (), (_WRONG_TOO, _WRONG)))),
        Example("two libraries on one GPU", _machine((cublas, (), (_WRONG,)), (cudnn, (), (_WRONG,))), fires=False),
        Example("it fails", _machine((cublas, (_CUBLAS,), (_WRONG_TOO, _FAILED))), fires=False),
        Example("all right", _machine((cublas, (), (_RIGHT,))), fires=False),
    ),
    "copies_corrupted": (
        Example("between GPUs", _copied(("GPU:0", "GPU:1"), ("GPU:1", "GPU:0"))),
        Example("to a GPU", _copied(("memory", "GPU:0"), ("GPU:0", "GPU:1"))),
        Example("now and then", _copied(("memory", "GPU:1"), wrong=0, rounds=3)),
        Example("all arrive", _copied(("GPU:0", "GPU:1"), wrong=0), fires=False),
    ),
}
