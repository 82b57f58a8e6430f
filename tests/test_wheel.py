"""What a wheel has beside the sources, and what scripts/wheel.py refuses in one."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import wheel
from gpudiag.cli import describe, explanation
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


def test_a_wheel_lacks_nothing_that_the_build_makes(tmp_path: Path) -> None:
    file = tmp_path / "gpudiag.whl"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("gpudiag/simulator/lib/not-built.txt", "no compiler")
    assert list(wheel.faults(file, "x86_64")) == [
        "there are no simulated GPUs in it: they could not be built (not-built.txt in it says why)",
        "gpudiag/cli/explanations.json is not in it: 'gpudiag explain' imports every cause",
        "gpudiag/py.typed is not in it: who imports the package has no types",
    ]


def test_the_build_writes_what_explain_says(tmp_path: Path) -> None:
    def cmake(*arguments: str) -> None:
        subprocess.run(["cmake", *arguments], check=True, capture_output=True, timeout=120)

    build = str(tmp_path / "build")
    cmake("-S", str(Path(__file__).parent.parent / "gpudiag/cli"), "-B", build, f"-DPYTHON_EXECUTABLE={sys.executable}")
    cmake("--install", build, "--prefix", str(tmp_path / "wheel"))
    index = tmp_path / "wheel/gpudiag/cli/explanations.json"
    assert [explanation.indexed(entry.name, index) for entry in describe.explanations()] == describe.explanations()


def test_an_installed_wheel_has_the_index_and_an_editable_installation_reads_its_sources() -> None:
    where = json.loads(importlib.metadata.distribution("gpudiag").read_text("direct_url.json") or "{}")
    editable = where.get("dir_info", {}).get("editable", False)
    assert explanation.INDEX.exists() is not editable
