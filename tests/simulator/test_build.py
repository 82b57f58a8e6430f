"""What pip builds where compilers are of another kind, lack something, or are not there."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import conftest
from gpudiag import guest
from gpudiag.simulator import Machine, SimulatorBroken, SimulatorMissing, library_directory, machine

from .on_machine import ROOT, cards

LIBRARIES = library_directory()

needs_tools = pytest.mark.skipif(
    not all(map(shutil.which, ("cmake", "ninja", "gcc", "g++"))), reason="needs cmake, ninja, gcc and g++"
)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an installed gpudiag.simulator, as `library_directory` sees it; its libraries are not there yet."""

    def none(name: str) -> importlib.metadata.Distribution:
        raise importlib.metadata.PackageNotFoundError(name)

    package = tmp_path / "gpudiag/simulator"
    package.mkdir(parents=True)
    monkeypatch.setattr(guest, "folders", lambda: [str(package.parent)])
    monkeypatch.setattr(importlib.metadata, "distribution", none)
    return package


def build(site: Path, **environment: str) -> str:
    """Do what pip does, without optimisation, and return what it shows; fails where the installation would."""
    folder = site / "build"
    output = ""
    for step in (
        [
            "-DSKBUILD_STATE=editable",
            "-G",
            "Ninja",
            "-S",
            str(ROOT / "gpudiag"),
            "-B",
            str(folder),
            "-DCMAKE_BUILD_TYPE=None",
        ],
        ["--build", str(folder)],
        ["--install", str(folder), "--prefix", str(site)],
    ):
        done = subprocess.run(
            ["cmake", *step],
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
            check=False,
        )
        output += done.stdout
        assert done.returncode == 0, output
    return output


def program(file: Path, script: str) -> str:
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return str(file)


@needs_tools
@pytest.mark.slow  # builds all of it; scripts/check.py does so with the flags of the gate
def test_flags_that_ask_for_errors_and_a_compiler_without_the_static_library(installed: Path, tmp_path: Path) -> None:
    refused = 'echo "ld: cannot find -lstdc++" >&2; exit 1'
    compiler = program(tmp_path / "g++", f'case "$*" in *-static-libstdc++*) {refused};; esac; exec g++ "$@"')
    build(tmp_path, CFLAGS="-Wpedantic -Werror", CXXFLAGS="-Wpedantic -Werror -Weffc++", CXX=compiler)
    assert library_directory() == installed / "lib"
    assert "libstdc++.so" in (installed / "lib" / machine.KERNELS).read_bytes().decode("latin-1")
    with Machine(cards(1)):
        pass


@needs_tools
@pytest.mark.parametrize(
    ("compiler", "reason"),
    [
        ({"CC": "/nowhere/cc"}, "/nowhere/cc"),
        ({"CC": "false"}, "is not able to compile a simple test program"),
        ({"CXX": "/nowhere/c++"}, r"/nowhere/c\+\+"),
        ({"CFLAGS": "-march=none-such"}, r"error: bad value .*none-such"),
        # A compiler whose C++ library is not GNU's, such as `zig c++`.
        ({"CXXFLAGS": "-D_GLIBCXX_USE_CXX11_ABI=0"}, r"error: #error .*install g\+\+"),
    ],
    ids=["no such C compiler", "broken C compiler", "no such C++ compiler", "unknown flag", "other C++ library"],
)
def test_where_it_cannot_be_built_the_installation_succeeds_and_it_is_said_why(
    compiler: dict[str, str], reason: str, installed: Path, tmp_path: Path
) -> None:
    output = build(tmp_path, **compiler)
    assert "installed without them" in output
    assert [file.name for file in (installed / "lib").iterdir()] == ["not-built.txt"]
    with pytest.raises(SimulatorMissing, match=rf"(?s)not built .*{reason}.*not-built.txt.*apt-get install gcc g\+\+"):
        library_directory()


def test_where_cmake_did_not_run(installed: Path) -> None:
    with pytest.raises(SimulatorMissing, match=r"CMake did not run, or .*apt-get install gcc g\+\+"):
        library_directory()


def _cut(content: bytes) -> bytes:
    return content[:2000]


def _from_a_newer_system(content: bytes) -> bytes:
    assert b"GLIBC_2.2.5\0" in content
    return content.replace(b"GLIBC_2.2.5\0", b"GLIBC_9.9.9\0")


def test_the_suite_does_not_run_without_the_simulator(installed: Path) -> None:
    with pytest.raises(pytest.UsageError, match=r"run on simulated GPUs: .*not built"):
        conftest.pytest_configure()


@pytest.mark.parametrize("library", [machine.CORE, machine.KERNELS])
@pytest.mark.parametrize(
    ("damage", "reason"),
    [(_cut, "signal 7 kills"), (lambda _: b"", "file too short"), (_from_a_newer_system, "`GLIBC_9.9.9' not found")],
    ids=["cut", "empty", "newer C library"],
)
def test_libraries_that_cannot_be_opened(
    damage: Callable[[bytes], bytes], reason: str, library: str, installed: Path
) -> None:
    shutil.copytree(LIBRARIES, installed / "lib")
    file = installed / "lib" / library
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(SimulatorBroken, match=rf"(?=.*{library}).*{reason}.*pip install --force-reinstall"):
        Machine(cards(1))
