"""a library of the system is older than the one that a package was built with

A binary runs on systems with the same or a newer C and C++ library than the one it was built on. TensorFlow's own
wheels (manylinux) need glibc 2.17 from 2.11 on, 2.12 before; wheels of others, of conda-forge or that you built can
need more. libstdc++ (GLIBCXX, CXXABI) can be replaced in an environment, glibc cannot.
"""

from __future__ import annotations

from pathlib import PurePath

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.imports import ImportLog
from gpudiag.fix import Kind, export, install, note, run, unset
from gpudiag.knowledge.messages.python_packages import SYSTEM_LIBRARY_OLD
from gpudiag.model.facts import Facts

CAUSE = Cause(
    title="{file} has no {what}_{version}, which {by} was built with",
    fix=(
        run("conda install -c conda-forge libstdcxx-ng", kind=Kind.INSTALL),
        run(
            "export LD_LIBRARY_PATH=$CONDA_PREFIX/lib:$LD_LIBRARY_PATH",
            "so that it is found first",
            kind=Kind.SET_VARIABLE,
        ),
    ),
    url="https://github.com/pypa/manylinux#readme",
    needs_gpu=False,
)


_PATH = "LD_LIBRARY_PATH"


def find(facts: Facts, program: ImportLog) -> Matches:
    said = program.first(SYSTEM_LIBRARY_OLD)
    if said is None:
        return
    glibc = said["what"] == "GLIBC"
    path = facts.variables.get(_PATH, "")
    folder = str(PurePath(said["file"]).parent) if said["file"] else ""
    rest = ":".join(entry for entry in path.split(":") if PurePath(entry) != PurePath(folder))
    if folder and rest != path:
        without = export(_PATH, rest, f"without {folder}") if rest else unset(_PATH, note=f"without {folder}")
        yield Match(
            (*program.said(SYSTEM_LIBRARY_OLD), f"{_PATH}={path}: {folder} is where the loader takes it from"),
            figures={
                "what": said["what"],
                "version": said["version"],
                "file": said["file"],
                "by": said["by"].rpartition("/")[2] or "a module",
            },
            fix=(without,),
            tried=None if facts.without_gpu else without,  # a trial uses the GPU
        )
        return
    yield Match(
        program.said(SYSTEM_LIBRARY_OLD),
        figures={
            "what": said["what"],
            "version": said["version"],
            "file": said["file"] or ("the C library" if glibc else "libstdc++.so.6"),
            "by": said["by"].rpartition("/")[2] or "a module",
        },
        fix=(
            install("--force-reinstall", "--no-cache-dir", "tensorflow", note="the wheel of pypi.org: it needs less")
            if glibc
            else run(
                "conda install -c conda-forge libstdcxx-ng", "or a newer libstdc++6 of the system", kind=Kind.INSTALL
            ),
            note(f"or a system, or an image, with glibc {said['version']} or newer: ldd --version")
            if glibc
            else run(
                "export LD_LIBRARY_PATH=$CONDA_PREFIX/lib:$LD_LIBRARY_PATH",
                "so that it is found first",
                kind=Kind.SET_VARIABLE,
            ),
        ),
    )
