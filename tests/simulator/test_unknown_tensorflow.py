"""A TensorFlow that the simulator does not know gets no simulated GPU, and so no wrong number."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gpudiag.simulator import CudaWheelMissing, require_cuda_wheel

from .on_machine import Inside

FIX = "pip install 'tensorflow>=2.18,<2.22'"


@pytest.mark.parametrize("version", ["2.22.0-rc0", "2.21.0-dev20260101", "2.17.1", "3.0.0"])
def test_a_process_of_another_release_has_no_gpu(inside: Inside, version: str) -> None:
    outcome = inside(1, "of_another_release", version=version)
    assert outcome.check() == [0, [6.0]]
    said = [line for line in outcome.log.splitlines() if "gpudiag" in line]
    assert len(said) == 1
    assert f"simulated GPUs know TensorFlow 2.18 to 2.21, and this is {version}" in said[0]
    assert FIX in said[0]


@pytest.mark.parametrize("version", ["2.18.1", "2.21.0-rc1"])
def test_a_known_release_has_one(inside: Inside, version: str) -> None:
    assert inside(1, "of_another_release", version=version).check() == [1, [6.0]]


def test_a_build_with_other_classes_is_refused(inside: Inside) -> None:
    before, after = inside(1, "with_another_class", exchanged=(7, 8)).check()
    assert "OpKernel" not in before
    assert "other virtual functions in OpKernel" in after


@pytest.mark.parametrize("folder", ["tensorflow-2.22.0rc0.dist-info", "tf_nightly-2.21.0.dev20260101.dist-info"])
def test_a_run_is_refused_before_it_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, folder: str) -> None:
    (tmp_path / "tensorflow/python/platform").mkdir(parents=True)
    (tmp_path / "tensorflow/__init__.py").touch()
    (tmp_path / "tensorflow/python/platform/build_info.py").write_text("build_info = [('is_cuda_build', True)]")
    (tmp_path / folder).mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    version = folder.partition("-")[2].removesuffix(".dist-info")
    with pytest.raises(CudaWheelMissing, match=f"know TensorFlow 2.18 to 2.21, and this is {version}: {FIX}"):
        require_cuda_wheel()
