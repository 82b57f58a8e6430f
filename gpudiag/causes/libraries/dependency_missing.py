"""a library was found but cannot be opened: another library that it needs is missing

TensorFlow opens seven CUDA libraries when it first looks for GPUs, and uses no GPU unless all of them open. Its log
says "Cannot dlopen some GPU libraries" and speaks of "the missing libraries mentioned above", but none is mentioned at
the default level. TF_CPP_VMODULE=dso_loader=1 names them; gpudiag opens each itself. Here a library is found, and one
that it needs in turn is not: cuSPARSE and cuSOLVER, for instance, need libnvJitLink.so.12 of another package.
"""

from __future__ import annotations

from shlex import quote

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.libraries import PIP_INSTALLATION, good_copy, lacks_known, seen
from gpudiag.fix import install
from gpudiag.model.facts import Facts
from gpudiag.probes.host.libraries import requirement, unopened

CAUSE = Cause(
    title="{library} was found but cannot be opened: it needs {names}",
    unfit=True,
    fix=(install("{requirements}"),),
    url=PIP_INSTALLATION,
    views=("host.libraries.unopened",),
)


def find(facts: Facts) -> Matches:
    for library in unopened(facts):
        lacking = lacks_known(library)
        if good_copy(library) is not None or library.instead is not None or not lacking:
            continue
        yield Match(
            evidence=(
                seen(library),
                *(f"{name} is needed by {library.lacks[name]} and found nowhere" for name in lacking),
            ),
            figures={
                "library": library.soname,
                "names": ", ".join(lacking),
                "requirements": " ".join(dict.fromkeys(quote(requirement(facts, name)) for name in lacking)),
            },
        )
