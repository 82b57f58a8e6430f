"""Installs gpudiag with compilers of many kinds, and with none, and writes ``reports/builds.md``.

Each row is ``pip install`` of this checkout in one environment, and then ``gpudiag check discovery.logical_devices
--simulate 2``: it passes, or says why there are no simulated GPUs. Compilers that are not here are rows that say so;
zig's come from PyPI, and some rows take things away in their own mount namespace, which needs root. It takes some
ten minutes and 2 GB for TensorFlow. Exit status 1 if a row is not as it is meant to be.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from python_matrix import ROOT, StepFailed, make_environment
from tabulate import tabulate

import gpudiag
from gpudiag.record import Record
from gpudiag.text import one_line

REPORT = ROOT / "reports/builds.md"
HEADERS = ("environment", "pip install", "simulated GPUs", "what it says")
ZIG = {"17": "0.12.1", "18": "0.13.0"}
"""clang's version to that of the zig which holds it (`zig cc --version`)."""

STATIC_LIBRARY_HIDDEN = (
    'folder=$(dirname "$(g++ -print-file-name=libstdc++.a)"); mount -t tmpfs tmpfs /mnt && mkdir /mnt/u /mnt/w && '
    'mount -t overlay overlay -o "lowerdir=$folder,upperdir=/mnt/u,workdir=/mnt/w" "$folder" && '
    'rm "$folder/libstdc++.a" && exec "$@"'
)
HEADERS_HIDDEN = (
    'mount -t tmpfs tmpfs "$(python -c \'import sysconfig; print(sysconfig.get_path("include"))\')" && exec "$@"'
)


class Case(Record):
    """One environment and what is meant to come of it."""

    name: str
    variables: Mapping[str, str] = {}
    hidden: tuple[str, ...] = ()
    """Programs that are not on PATH: those whose name begins so."""
    options: tuple[str, ...] = ("--no-build-isolation",)
    """Of pip. Without build isolation it gets nothing from PyPI."""
    inside: str = ""
    """A shell script that changes a mount namespace, then runs its arguments."""
    needs: tuple[str, ...] = ()
    """Programs without which there is no such environment here."""
    simulated: bool = True
    installed: bool = True


COMPILERS = ("gcc", "g++", "cc", "c++", "c89", "c99", "clang", "x86_64-linux-gnu-g", "cpp")
ONLINE = ("-q",)
OFFLINE = ("--no-build-isolation",)

CASES = (
    Case("gcc"),
    *(
        Case(f"clang {version}", {"CC": f"clang-{version}", "CXX": f"clang++-{version}"}, needs=(f"clang++-{version}",))
        for version in ("14", "15", "16", "19")
    ),
    *(Case(f"clang {version} (zig cc) for C, g++", {"CC": f"zig{version}-cc", "CXX": "g++"}) for version in ZIG),
    Case("gcc, no libstdc++.a", inside=STATIC_LIBRARY_HIDDEN),
    Case("gcc, no headers of Python", inside=HEADERS_HIDDEN),
    Case("gcc, CFLAGS=-Wpedantic", {"CFLAGS": "-Wpedantic"}),
    Case("gcc, all warnings are errors", {"CFLAGS": "-Wpedantic -Werror", "CXXFLAGS": "-Wpedantic -Weffc++ -Werror"}),
    Case("gcc, CFLAGS=-march=none-such", {"CFLAGS": "-march=none-such"}, simulated=False),
    Case("CC does not exist", {"CC": "/nowhere/cc"}, simulated=False),
    Case("CC fails", {"CC": "false"}, simulated=False),
    Case("CXX does not exist", {"CXX": "/nowhere/c++"}, simulated=False),
    Case("CXX fails", {"CXX": "false"}, simulated=False),
    Case("no compiler", hidden=COMPILERS, simulated=False),
    Case("a C compiler alone", hidden=("g++", "c++", "clang", "x86_64-linux-gnu-g++"), simulated=False),
    Case("no ninja", hidden=("ninja",)),
    Case("no make and no ninja, online", hidden=("ninja", "make", "gmake"), options=ONLINE),
    Case("no make and no ninja, offline", hidden=("ninja", "make", "gmake"), simulated=False, installed=False),
    Case("no CMake, online", hidden=("cmake",), options=ONLINE),
    Case("CMake 3.10, online", {"PATH": "old-cmake"}, hidden=("cmake",), options=ONLINE),
    Case("no CMake, offline", hidden=("cmake",), simulated=False, installed=False),
    Case(
        "no CMake, offline, -C wheel.cmake=false",
        hidden=("cmake",),
        options=(*OFFLINE, "-C", "wheel.cmake=false"),
        simulated=False,
    ),
    # The last: zig builds LLVM's library first.
    Case("clang 18 with LLVM's libc++ (zig c++)", {"CC": "zig18-cc", "CXX": "zig18-c++"}, simulated=False),
)


def prepare_tools(folder: Path) -> None:
    """Put zig's compilers and a CMake of long ago into ``folder``."""
    for clang, zig in ZIG.items():
        python = make_environment(
            f"{sys.version_info[0]}.{sys.version_info[1]}", folder / f"zig-{zig}", f"ziglang=={zig}"
        )
        for language in ("cc", "c++"):
            _program(folder / f"zig{clang}-{language}", f'exec {python / "python"} -m ziglang {language} "$@"')
    (folder / "old-cmake").mkdir()
    _program(folder / "old-cmake/cmake", "echo cmake version 3.10.2")


def _program(file: Path, script: str) -> None:
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)


def search_path(case: Case, tools: Path, programs: Path, folder: Path) -> str:
    """Return PATH for the case: links to all but the hidden programs."""
    links = folder / "bin"
    shutil.rmtree(links, ignore_errors=True)
    links.mkdir(parents=True)
    for place in ("/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"):
        for program in Path(place).iterdir() if Path(place).is_dir() else ():
            if not program.name.startswith(case.hidden or "\0") and not (links / program.name).exists():
                (links / program.name).symlink_to(program)
    first = [str(tools / case.variables["PATH"])] if "PATH" in case.variables else []
    return os.pathsep.join([*first, str(programs), str(tools), str(links)])


def install(case: Case, tools: Path, programs: Path, folder: Path) -> tuple[str, ...]:
    """Install in the environment of the case, and look at what came of it; return its row."""
    if missing := [program for program in case.needs if not shutil.which(program)]:
        return (case.name, "not tried", "", f"{missing[0]} is not here")
    if case.inside and os.getuid():
        return (case.name, "not tried", "", "needs root")
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV", "GPUDIAG_"))
    }
    environment = {**clean, **case.variables, "PATH": search_path(case, tools, programs, folder)}
    within = ["unshare", "-m", "sh", "-c", case.inside, "sh"] if case.inside else []
    pip = [
        str(programs / "pip"),
        "install",
        "-q",
        "--force-reinstall",
        "--no-deps",
        "--no-cache-dir",
        *case.options,
        str(ROOT),
    ]
    uninstall = [str(programs / "pip"), "uninstall", "-q", "-y", "gpudiag"]
    subprocess.run(uninstall, env=clean, capture_output=True, timeout=300, check=True)
    done = _run([*within, *pip], environment)
    if done.returncode:
        return (case.name, "fails", "no", _brief(next(filter(None, reversed(done.stderr.splitlines())), "")))
    check = [str(programs / "gpudiag"), "check", "discovery.logical_devices", "--simulate", "2"]
    ran = _run(check, clean)
    said = ran.stderr if ran.returncode == 2 else ran.stdout  # a usage error: no simulated GPUs
    line = next(
        (line for line in said.splitlines() if line.startswith(("PASS", "FAIL", "NOT VERIFIED", "error"))), said
    )
    return (case.name, "succeeds", "no" if ran.returncode else "yes", _brief(line.partition(". Install CMake")[0]))


def _run(command: list[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd="/", env=environment, capture_output=True, text=True, errors="replace", timeout=1200, check=False
    )


def _brief(text: str) -> str:
    text = one_line(text.replace(str(ROOT), "<checkout>").replace(tempfile.gettempdir(), "<tmp>")).replace("|", "\\|")
    return text if len(text) <= 300 else f"{text[:299]}…"


def main() -> int:
    """Run every case; return 1 if one is not as it is meant to be."""
    wrong = []
    rows = []
    with tempfile.TemporaryDirectory(prefix="gpudiag-builds-") as temporary:
        folder = Path(temporary)
        (folder / "tools").mkdir()
        version = f"{sys.version_info[0]}.{sys.version_info[1]}"
        try:
            prepare_tools(folder / "tools")
            programs = make_environment(version, folder / "venv", f"{ROOT}[tensorflow]", "scikit-build-core")
        except StepFailed as failure:
            print(failure, file=sys.stderr)
            return 1
        for case in CASES:
            row = install(case, folder / "tools", programs, folder / "links")
            print(*row, sep=" | ", flush=True)
            rows.append(row)
            meant = ("succeeds" if case.installed else "fails", "yes" if case.simulated else "no")
            if row[1] != "not tried" and row[1:3] != meant:
                wrong.append(case.name)
    REPORT.write_text(
        f"# Installation with compilers of many kinds, and with none\n\ngpudiag {gpudiag.__version__}, "
        f"`python scripts/build_matrix.py`.\n\n{tabulate(rows, HEADERS, 'github')}\n"
    )
    print(f"not as meant: {', '.join(wrong)}" if wrong else "all as meant")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
