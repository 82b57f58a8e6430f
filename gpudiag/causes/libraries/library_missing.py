"""a library was not found: the package that contains it is missing

TensorFlow opens seven CUDA libraries when it first looks for GPUs, and uses no GPU unless all of them open. Its log
says "Cannot dlopen some GPU libraries" and speaks of "the missing libraries mentioned above", but none is mentioned at
the default level. TF_CPP_VMODULE=dso_loader=1 names them; gpudiag opens each itself.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.libraries import (
    PATH,
    PIP_INSTALLATION,
    good_copy,
    lacks_known,
    passed_over,
    seen,
    then_cusolver,
    with_cuda,
)
from gpudiag.fix import edit_note, install
from gpudiag.model.facts import Facts
from gpudiag.probes.host.libraries import PACKAGES, RUNTIME, installed, requirement, unopened

CAUSE = Cause(
    title="{names} was not found: the library of {packages} is missing",
    unfit=True,
    fix=(install("tensorflow[and-cuda]==2.21.0"),),
    url=PIP_INSTALLATION,
    views=("host.libraries.unopened",),
    unless={
        "installation_interrupted": "what pip left unfinished includes the library",
    },
)


def find(facts: Facts) -> Matches:
    missing = [
        library
        for library in unopened(facts)
        if library.soname != RUNTIME and not good_copy(library) and library.instead is None and not lacks_known(library)
        if library.soname.partition(".")[0] in PACKAGES
    ]
    if not missing:
        return
    damaged = [package for library in missing if (package := installed(facts, library.soname)) is not None]
    absent = [library for library in missing if installed(facts, library.soname) is None]
    is_bare = not any(installed(facts, name) for name in PACKAGES)
    needed = [with_cuda(facts)] if absent and is_bare else [requirement(facts, library.soname) for library in absent]
    again = dict.fromkeys(f"{package.name}=={package.version}" for package in damaged)
    first = [folder for library in missing for folder in library.damaged_folders]
    yield Match(
        evidence=(*map(seen, missing), *passed_over(missing)),
        figures={
            "names": ", ".join(library.soname for library in missing),
            "packages": ", ".join(dict.fromkeys(PACKAGES[library.soname.partition(".")[0]] for library in missing)),
        },
        about=tuple(library.soname for library in missing),
        fix=(
            install(*dict.fromkeys(needed)) if needed else None,
            install("--force-reinstall", "--no-deps", *again) if again else None,
            then_cusolver(facts) if any(library.soname.startswith("libcusolver") for library in absent) else None,
            edit_note(f"take {first[0]} out of {PATH}: what is in it is not a library that opens, and comes first")
            if first
            else None,
        ),
    )
