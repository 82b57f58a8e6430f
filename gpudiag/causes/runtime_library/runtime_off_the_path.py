"""{names} is in {folders}, where TensorFlow {tensorflow} does not look

libcudart.so.12 is the first library that TensorFlow opens. Where it cannot be opened the log says "Could not find
cuda drivers on your machine", which is wrong: the driver has nothing to do with it. Here the library is on the
machine, in a folder that the loader does not search.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Matches
from gpudiag.causes.shared.libraries import LOADER, off_the_path
from gpudiag.fix import Role, configure, prepend
from gpudiag.model.facts import Facts

CAUSE = Cause(
    fix=(
        prepend("LD_LIBRARY_PATH", "{folders}"),
        configure(
            "echo {folders} | tr : '\\n' | sudo tee /etc/ld.so.conf.d/cuda.conf && sudo ldconfig",
            "for all users",
            role=Role.ALTERNATIVE,
        ),
    ),
    url=LOADER,
    views=("host.libraries.unopened",),
)


def find(facts: Facts) -> Matches:
    yield from off_the_path(facts, CAUSE, runtime=True, packaged=None)
