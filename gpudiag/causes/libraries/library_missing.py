"""a library was not found, or its file cannot be used

TensorFlow opens seven CUDA libraries when it first looks for GPUs, and uses no GPU unless all of them open. Its log
says "Cannot dlopen some GPU libraries" and speaks of "the missing libraries mentioned above", but none is mentioned at
the default level. TF_CPP_VMODULE=dso_loader=1 names them; gpudiag opens each itself. The package is not installed, or
its file is not what it should be: a link to nothing, cut short, closed to this user, on a file system that is mounted
noexec. The loader passes over some of these without a word, and says "No such file or directory" in the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.files import KEEPS_OUT, repairs, shown, states
from gpudiag.causes.shared.libraries import (
    PATH,
    PIP_INSTALLATION,
    good_copy,
    lacks_known,
    problem,
    secure_loader,
    seen,
    then_cusolver,
    with_cuda,
)
from gpudiag.fix import edit_note, install
from gpudiag.model.facts import Facts, Library, Unknown
from gpudiag.probes.host.libraries import PACKAGES, RUNTIME, installed, requirement, unopened
from gpudiag.provenance import off_the_loaders_path

CAUSE = Cause(
    title="{names} {problem}",
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
    whole = {library.soname for library in missing if any(state.fault in KEEPS_OUT for state in library.files)}
    damaged = [
        package
        for library in missing
        if library.soname not in whole and (package := installed(facts, library.soname)) is not None
    ]
    absent = [library for library in missing if installed(facts, library.soname) is None]
    is_bare = not any(installed(facts, name) for name in PACKAGES)
    if is_bare and any(library.soname == RUNTIME and not good_copy(library) for library in unopened(facts)):
        return  # no package of CUDA is installed: that the runtime is missing says it, with the same fix
    needed = [with_cuda(facts)] if absent and is_bare else [requirement(facts, library.soname) for library in absent]
    again = dict.fromkeys(f"{package.name}=={package.version}" for package in damaged)
    ignored, secure = secure_loader(facts)
    configured = {} if isinstance(facts.libraries, Unknown) else facts.libraries.configured
    unowned = dict.fromkeys(str(PurePath(state.path).parent) for state in states(missing) if not state.owner)
    first = [folder for library in missing for folder in library.damaged_folders]
    yield Match(
        evidence=(*map(seen, missing), *shown(missing), *ignored),
        figures={
            "names": ", ".join(library.soname for library in missing),
            "problem": problem(missing, _not_found(missing, absent)),
        },
        about=tuple(library.soname for library in missing),
        fix=(
            *repairs(state for state in states(missing) if state.fault in KEEPS_OUT),
            install(*dict.fromkeys(needed)) if needed else None,
            install("--force-reinstall", "--no-deps", "--no-cache-dir", *again) if again else None,
            then_cusolver(facts) if any(library.soname.startswith("libcusolver") for library in absent) else None,
            edit_note(f"take {first[0]} out of {PATH}: what is in it is not a library that opens, and comes first")
            if first
            else None,
            *(off_the_loaders_path(folder, configured[folder]) for folder in unowned if folder in configured),
            *secure,
        ),
    )


def _not_found(missing: Sequence[Library], absent: Sequence[Library]) -> str:
    """Return the end of a sentence on libraries that are nowhere; the packages of ``absent`` are not installed."""
    verb = "was" if len(missing) == 1 else "were"
    packages = list(dict.fromkeys(PACKAGES[library.soname.partition(".")[0]] for library in absent))
    if not packages:
        return f"{verb} not found, though the package is installed"
    return f"{verb} not found: {', '.join(packages)} {'is' if len(packages) == 1 else 'are'} not installed"
