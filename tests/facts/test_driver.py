"""The family ``driver`` with a kernel module and a driver library made by the test."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from gpudiag.facts import driver

CLOSED = """NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023
GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)
"""
OPEN = """NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.14  Release Build  (dvs-builder@U16)  Thu Feb
GCC version:  gcc version 11.4.0 (Ubuntu 11.4.0-1ubuntu1~22.04)
"""
ABSENT = "libgpudiag-is-not-there.so.1"


@pytest.mark.parametrize(
    ("text", "version"), [(CLOSED, "535.104.05"), (OPEN, "550.54.14"), ("something new\n", "something new")]
)
def test_version_of_the_kernel_module(tmp_path: Path, text: str, version: str) -> None:
    file = tmp_path / "proc/driver/nvidia/version"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    assert driver.gather(tmp_path, ABSENT).kernel_module == version


def test_without_module_and_library(tmp_path: Path) -> None:
    facts = driver.gather(tmp_path, ABSENT)
    assert (facts.kernel_module, facts.libcuda_path, facts.cuda_version) == (None, None, None)
    assert facts.libcuda_error is not None
    assert facts.libcuda_error.startswith(f"{ABSENT}: cannot open shared object file")


def library(folder: Path, version: int, status: int) -> Path:
    """Return a link to a driver library of which ``cuDriverGetVersion`` is the only function."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler (cc or gcc) to make a driver library")
    source, real = folder / "cuda.c", folder / f"libcudatest{version}.so.535.104.05"
    source.write_text(f"int cuDriverGetVersion(int *version) {{ *version = {version}; return {status}; }}\n")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(real), str(source)], check=True)
    link = folder / f"libcudatest{version}.so.1"
    link.symlink_to(real)
    return link


def test_a_library_that_answers(tmp_path: Path) -> None:
    link = library(tmp_path, 12050, 0)
    facts = driver.gather(tmp_path, str(link))
    assert (facts.libcuda_error, facts.cuda_version) == (None, "12.5")
    assert facts.libcuda_path == str(link.resolve())


def test_a_stub_library(tmp_path: Path) -> None:
    link = library(tmp_path, 11040, 34)
    facts = driver.gather(tmp_path, str(link))
    assert facts.libcuda_error == "cuDriverGetVersion returned CUDA error 34"
    assert (facts.libcuda_path, facts.cuda_version) == (str(link.resolve()), None)
