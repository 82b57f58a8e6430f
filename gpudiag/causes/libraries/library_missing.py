"""{names} cannot be opened: the library of {packages} is not here

TensorFlow opens seven CUDA libraries when it first looks for GPUs, and uses no GPU unless all of them open. Its log
says "Cannot dlopen some GPU libraries" and speaks of "the missing libraries mentioned above", but none is mentioned
at the default level. TF_CPP_VMODULE=dso_loader=1 names them; gpudiag opens each itself.
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
from gpudiag.fix import Kind, install, note, run
from gpudiag.model.facts import Facts
from gpudiag.probes.host.libraries import PACKAGES, RUNTIME, installed, requirement, unopened

CAUSE = Cause(
    unfit=True,
    fix=(install("tensorflow[and-cuda]==2.21.0"),),
    url=PIP_INSTALLATION,
    views=("host.libraries.unopened",),
    unless=("installation_interrupted",),
)


def find(facts: Facts) -> Matches:
    missing = [
        one
        for one in unopened(facts)
        if one.soname != RUNTIME and not good_copy(one) and one.instead is None and not lacks_known(one)
        if one.soname.partition(".")[0] in PACKAGES
    ]
    if not missing:
        return
    damaged = [package for one in missing if (package := installed(facts, one.soname)) is not None]
    absent = [one for one in missing if installed(facts, one.soname) is None]
    commands = []
    if absent and not any(installed(facts, name) for name in PACKAGES):
        commands.append(f"pip install {with_cuda(facts)}")
    elif absent:
        commands.append(f"pip install {' '.join(dict.fromkeys(requirement(facts, one.soname) for one in absent))}")
    if damaged:
        again = " ".join(dict.fromkeys(f"{package.name}=={package.version}" for package in damaged))
        commands.append(f"pip install --force-reinstall --no-deps {again}")
    first = [folder for one in missing for folder in one.damaged_folders]
    yield Match(
        evidence=(*map(seen, missing), *passed_over(missing)),
        figures={
            "names": ", ".join(one.soname for one in missing),
            "packages": ", ".join(dict.fromkeys(PACKAGES[one.soname.partition(".")[0]] for one in missing)),
        },
        about=tuple(one.soname for one in missing),
        fix=(
            run("; ".join(commands), kind=Kind.INSTALL),
            then_cusolver(facts) if any(one.soname.startswith("libcusolver") for one in absent) else None,
            note(
                f"take {first[0]} out of {PATH}: what is in it is not a library that opens, and comes first",
                kind=Kind.EDIT_PROGRAM,
            )
            if first
            else None,
        ),
    )
