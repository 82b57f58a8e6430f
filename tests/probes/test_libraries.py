"""The probes of NVIDIA's libraries: what counts as right, and what a fault in a library comes to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from conftest import Gpudiag
from examples import evidence, found
from gpudiag.model import codec
from gpudiag.model.report import Verdict
from gpudiag.probe import Raised, Verified
from gpudiag.probes import comparison
from gpudiag.probes.comparison import BFLOAT16, DOUBLE, HALF, SINGLE, TF32, Check, difference
from gpudiag.probes.libraries.cublas import Reading

PCI = "0000:01:00.0"
RIGHT = Check("a product", "GPU:0", "GPU:0", 1e-7, SINGLE)


def rounded(values: Any, bits: int) -> Any:
    """Return ``values`` with this many bits of precision."""
    fraction, exponent = np.frexp(values)
    return np.ldexp(np.round(fraction * 2.0**bits), exponent - bits)


def rounding(bits: int, seed: int) -> float:
    """Return by how much a product differs whose factors and whose result have this many bits."""
    left, other = comparison.normal(64, 64, seed=seed), comparison.normal(64, 64, seed=seed + 1)
    return difference(rounded(rounded(left, bits) @ rounded(other, bits), bits), left @ other) or 0.0


@pytest.mark.parametrize(("bits", "most"), [(50, DOUBLE), (24, SINGLE), (11, TF32), (11, HALF), (8, BFLOAT16)])
def test_rounding_is_allowed_and_a_wrong_digit_is_not(bits: int, most: float) -> None:
    errors = [rounding(bits, seed) for seed in range(5)]
    assert 0 < max(errors) < most / 3  # room for another order of adding
    right = comparison.normal(64, 64)
    wrong = right.copy()
    wrong[3, 5] += 0.2
    assert (difference(wrong, right) or 0) > most


def test_float32_that_is_computed_in_tf32_is_noticed() -> None:
    assert min(rounding(11, seed) for seed in range(5)) > 3 * SINGLE


@pytest.mark.parametrize(
    ("computed", "right", "expected"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0),
        ([1.0, 2.5], [1.0, 2.0], 0.25),
        ([0.0], [0.0], 0.0),
        ([1.0, float("nan")], [1.0, 2.0], None),
        ([1.0, float("inf")], [1.0, 2.0], None),
        ([1.0], [1.0, 2.0], None),
        ([1 + 1j], [1 + 0j], 1.0),
    ],
)
def test_a_difference_is_a_part_of_the_largest_value(computed: object, right: object, expected: float | None) -> None:
    assert difference(np.asarray(computed), np.asarray(right)) == expected


def reading(*checks: Check, found: str = PCI, unchecked: tuple[str, ...] = ()) -> Reading:
    return Reading(given=(PCI,), seen=1, made={"GPU:0": found}, checks=checks, unchecked=unchecked)


def test_a_gpu_is_verified_only_if_everything_on_it_is_right() -> None:
    wrong = Check("another", "GPU:0", "GPU:0", 1.0, SINGLE)
    assert list(reading(RIGHT).judged("cuBLAS")) == [Verified(PCI)]
    assert [type(finding).__name__ for finding in reading(RIGHT, wrong).judged("cuBLAS")] == ["Finding"]
    assert list(reading(unchecked=("all of it",)).judged("cuBLAS")) == []


def test_what_was_not_checked_is_said_and_not_counted() -> None:
    assert reading(RIGHT).figure() == "1 of 1 right on 1 GPU"
    assert reading(RIGHT, unchecked=("LSTM",)).figure() == "1 of 1 right on 1 GPU; not checked: LSTM"
    assert reading(unchecked=("LSTM",)).figure() == "not checked: LSTM"


def test_an_error_is_shown_without_the_name_that_tensorflow_gives_an_operation() -> None:
    node = "{{function_node __wrapped__MatMul_device_/job:localhost/replica:0/task:0/device:GPU:0}} "
    raised = Raised("InternalError", f"{node}No blas support for stream [Op:MatMul] name: ")
    assert raised.brief == "InternalError: No blas support for stream [Op:MatMul]"


@pytest.mark.parametrize(
    ("example", "said"),
    [
        ("cuDNN", "cuDNN does not work on GPU:1: CUDNN_STATUS_NOT_INITIALIZED"),
        ("cuBLAS", "cuBLAS does not work on GPU:1: CUBLAS_STATUS_ALLOC_FAILED (the resource allocation failed)"),
        ("cuFFT, by its number", "cuFFT does not work on GPU:1: CUFFT_INTERNAL_ERROR (5)"),
        (
            "cuSOLVER, whose process ended",
            "cuSOLVER does not work on the GPUs: it gives no handle, and TensorFlow ends the process",
        ),
        ("cuSPARSE", "cuSPARSE does not work on GPU:1: CUSPARSE_STATUS_NOT_INITIALIZED"),
    ],
)
def test_a_library_that_fails_is_named_with_its_status(example: str, said: str) -> None:
    [cause] = found("library_fails", evidence("library_fails", example))
    assert cause.cause == said
    assert (
        cause.fix[0].command.startswith("pip install --force-reinstall nvidia-cu")
        or "'nvidia-cu" in cause.fix[0].command
    )


def test_a_path_is_to_be_unset_only_if_it_is_set() -> None:
    plain, with_path = (
        found("library_fails", evidence("library_fails", name))[0].fix
        for name in ("cuDNN", "cuDNN, and a path of the user's")
    )
    assert not any("LD_LIBRARY_PATH" in action.command for action in plain)
    assert any("LD_LIBRARY_PATH" in action.command for action in with_path)


@pytest.mark.usefixtures("no_child_left")
def test_a_machine_whose_cudnn_cannot_start_fails_at_the_quick_level_and_says_why(gpudiag: Gpudiag) -> None:
    arguments = gpudiag.simulated("2", ("call_fails=cudnnCreate:1001",))
    done = gpudiag("check", *arguments, "--level", "quick", "--format", "json")
    report = codec.decode(done.stdout, done.stderr)
    assert (done.returncode, report.verdict) == (1, Verdict.FAIL)
    assert {row.probe for row in report.rows if row.status == "fail"} == {"libraries.cudnn"}
    assert [(cause.cause_id, cause.confidence.value) for cause in report.diagnosis.causes] == [
        ("library_fails", "proved")
    ]
    assert "CUDNN_STATUS_NOT_INITIALIZED" in report.diagnosis.causes[0].cause
