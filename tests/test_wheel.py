"""What scripts/wheel.py refuses in a wheel, on the libraries that were built here."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

import wheel
from gpudiag.simulator import library_directory


def test_a_library_for_the_oldest_system_is_accepted() -> None:
    assert not list(wheel.library_faults((library_directory() / "libcuda.so.1").read_bytes(), "x86_64"))


def test_what_a_library_needs_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    core = (library_directory() / "libgpudiag_cuda.so").read_bytes()
    assert next(iter(wheel.library_faults(core, "aarch64"))) == "it is for EM_X86_64"
    monkeypatch.setattr(wheel, "GLIBC", (2, 1))
    assert "it needs GLIBC_2.2.5" in list(wheel.library_faults(core, "x86_64"))
    monkeypatch.setattr(wheel, "ALLOWED", ())
    assert "it needs libc.so.6" in list(wheel.library_faults(core, "x86_64"))


def test_a_wheel_without_the_simulated_gpus_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "gpudiag.whl"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("gpudiag/simulator/lib/not-built.txt", "no compiler")
    assert list(wheel.faults(file, "x86_64")) == [
        "there are no simulated GPUs in it: they could not be built (not-built.txt in it says why)"
    ]
