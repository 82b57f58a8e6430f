"""Of two faults the earlier on TensorFlow's way to a GPU is named first, and once it is mended the later."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from conftest import Gpudiag
from gpudiag.model import codec
from gpudiag.model.diagnosis import Diagnosis

pytestmark = pytest.mark.usefixtures("no_child_left")
HIDDEN = {"CUDA_VISIBLE_DEVICES": "9"}
CUSOLVER = "library_missing=libcusolver.so.11"


def diagnosed(gpudiag: Gpudiag, faults: tuple[str, ...], variables: dict[str, str]) -> Diagnosis:
    arguments = ("host", "discovery", *gpudiag.simulated("2", faults), "--format", "json")
    done = gpudiag("check", *arguments, flags=(), **variables)
    return codec.decode(done.stdout, done.stderr).diagnosis


@dataclass(frozen=True)
class TwoFaults:
    """A machine with two faults, and what is named before and after the first is mended."""

    faults: tuple[str, ...]
    first: str
    then: str
    variables: dict[str, str] = field(default_factory=dict)
    mended: tuple[str, ...] = (CUSOLVER,)

    def __str__(self) -> str:
        return f"{self.first}, then {self.then}"


@pytest.mark.parametrize(
    "machine",
    [
        TwoFaults((CUSOLVER,), "mask_hides_all", "library_missing", HIDDEN),
        TwoFaults(("nvml_missing", CUSOLVER), "nvml_missing", "library_missing"),
        pytest.param(
            TwoFaults(("library_missing=libcudart.so.12", CUSOLVER), "runtime_missing", "library_missing"),
            marks=pytest.mark.slow,  # TensorFlow is imported anew on each of its machines
        ),
    ],
    ids=str,
)
def test_the_earlier_is_named_first_and_then_the_later(machine: TwoFaults, gpudiag: Gpudiag) -> None:
    both = diagnosed(gpudiag, machine.faults, machine.variables)
    assert both.causes[0].cause_id == machine.first
    assert both.causes[0].stage is both.broken_at
    after = diagnosed(gpudiag, machine.mended, {})
    assert after.causes[0].cause_id == machine.then
