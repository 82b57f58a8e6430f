"""{library} is here but cannot be opened, because it needs {names}

TensorFlow opens seven CUDA libraries when it first looks for GPUs, and uses no GPU unless all of them open. Its log
says "Cannot dlopen some GPU libraries" and speaks of "the missing libraries mentioned above", but none is mentioned
at the default level. TF_CPP_VMODULE=dso_loader=1 names them; gpudiag opens each itself. Here a library is found, and
one that it needs in turn is not: cuSPARSE and cuSOLVER, for instance, need libnvJitLink.so.12 of
another package.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.libraries import PIP_INSTALLATION, good_copy, lacks_known, seen
from gpudiag.fix import install
from gpudiag.model.facts import Facts
from gpudiag.probes.host.libraries import requirement, unopened

CAUSE = Cause(
    unfit=True,
    fix=(install("{requirements}"),),
    url=PIP_INSTALLATION,
    views=("host.libraries.unopened",),
)


def find(facts: Facts) -> Matches:
    for one in unopened(facts):
        lacking = lacks_known(one)
        if good_copy(one) is not None or one.instead is not None or not lacking:
            continue
        yield Match(
            evidence=(seen(one), *(f"{name} is needed by {one.lacks[name]} and found nowhere" for name in lacking)),
            figures={
                "library": one.soname,
                "names": ", ".join(lacking),
                "requirements": " ".join(dict.fromkeys(requirement(facts, name) for name in lacking)),
            },
        )
