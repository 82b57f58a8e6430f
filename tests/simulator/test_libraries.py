"""An operation that a real GPU does through a library of NVIDIA's asks for its handle, as TensorFlow does there."""

from __future__ import annotations

import pytest

from .on_machine import TENSORFLOW, Inside

pytestmark = pytest.mark.skipif(TENSORFLOW < (2, 21), reason="the texts are those of TensorFlow 2.21")

ALL = ("blas", "conv", "norm", "pool", "fft", "solver", "sparse", "sum")
INTERNAL = "InternalError"


def test_on_a_healthy_machine_each_library_gives_its_handle(inside: Inside) -> None:
    outcome = inside(2, "through_libraries", ops=ALL, gpu=1)
    assert outcome.check() == dict.fromkeys(ALL, "GPU:1")
    assert "Loaded cuDNN version 90300" in outcome.log
    assert "Creating GpuSolver handles for stream" in outcome.log
    assert "Creating CudaSparse handles for stream" in outcome.log


@pytest.mark.parametrize(
    ("fault", "failing", "logged"),
    [
        (
            "cublasCreate_v2:3",
            {"blas": (INTERNAL, "No blas support for stream")},
            "failed to create cublas handle: the resource allocation failed",
        ),
        ("cublasLtCreate:1", {"blas": (INTERNAL, "No blas support for stream")}, "Failure to initialize cublas may be"),
        (
            "cudnnCreate:1001",
            {
                "conv": ("InvalidArgumentError", "No DNN in stream executor."),
                "norm": (INTERNAL, "No DNN support for stream"),
                "pool": (INTERNAL, "No DNN support for stream."),
            },
            "Could not create cudnn handle: CUDNN_STATUS_NOT_INITIALIZED",
        ),
        (
            "cufftCreate:5",
            {"fft": (INTERNAL, "Failed to create cuFFT batched plan with scratch allocator")},
            "Failed to create cuFFT batched plan: 5",
        ),
        (
            "cufftMakePlanMany64:2",
            {"fft": (INTERNAL, "Failed to create cuFFT batched plan with scratch allocator")},
            "Failed to make cuFFT batched plan: 2",
        ),
        (
            "cusparseCreate:1",
            {"sparse": (INTERNAL, "cuSparse call failed with status CUSPARSE_STATUS_NOT_INITIALIZED")},
            "",
        ),
    ],
)
def test_a_library_that_gives_no_handle_fails_its_own_operations(
    inside: Inside, fault: str, failing: dict[str, tuple[str, str]], logged: str
) -> None:
    ops = tuple(op for op in ALL if op != "solver" or "cublas" not in fault)
    outcome = inside(1, "through_libraries", ops=ops, faults=(f"call_fails={fault}",))
    found = outcome.check()
    assert {name for name, value in found.items() if value != "GPU:0"} == set(failing)
    for name, (kind, text) in failing.items():
        assert found[name][0] == kind
        assert text in found[name][1]
    assert logged in outcome.log


def test_a_library_fails_on_the_gpu_that_is_meant(inside: Inside) -> None:
    fault = ("call_fails=cudnnCreate:1001@1",)
    assert inside(2, "through_libraries", ops=("conv",), gpu=0, faults=fault).check() == {"conv": "GPU:0"}
    assert inside(2, "through_libraries", ops=("conv",), gpu=1, faults=fault).check()["conv"][0] != "GPU:1"


def test_without_cusolver_tensorflow_ends_the_process(inside: Inside) -> None:
    outcome = inside(1, "through_libraries", ops=("solver",), faults=("call_fails=cusolverDnCreate:1",))
    assert outcome.code in {-6, 134}
    assert "Check failed: cusolverDnCreate(&cusolver_dn_handle) == CUSOLVER_STATUS_SUCCESS" in outcome.log


def test_a_collective_asks_nccl_for_a_communicator(inside: Inside) -> None:
    assert inside(2, "strategy_sum").check() == [2.0, 2.0]
    outcome = inside(2, "strategy_sum", faults=("call_fails=ncclCommInitRank:2",))
    assert outcome.error == INTERNAL
    assert "Collective ops is aborted by: NCCL: unhandled system error" in outcome.text
