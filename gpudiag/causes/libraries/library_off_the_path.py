"""a library cannot be opened: there is a good copy, but the loader does not reach it

TensorFlow opens seven CUDA libraries when it first looks for GPUs, and uses no GPU unless all of them open. Its log
says "Cannot dlopen some GPU libraries" and speaks of "the missing libraries mentioned above", but none is mentioned at
the default level. TF_CPP_VMODULE=dso_loader=1 names them; gpudiag opens each itself. Here the library is on the machine
(a CUDA toolkit, conda, a package), in a folder that is neither in LD_LIBRARY_PATH nor in the loader's cache, or after a
damaged copy. If it is the CUDA runtime, libcudart, which TensorFlow opens first, the log says "Could not find cuda
drivers on your machine", which is wrong: the driver has nothing to do with it.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Matches
from gpudiag.causes.shared.libraries import LOADER, off_the_path
from gpudiag.fix import Role, configure, prepend
from gpudiag.model.facts import Facts

CAUSE = Cause(
    title="{names} cannot be opened: a good copy is in {folders}, but the loader does not reach it",
    fix=(
        prepend("LD_LIBRARY_PATH", "{folders}"),
        configure(
            "echo {folders} | tr : '\\n' | sudo tee /etc/ld.so.conf.d/cuda.conf && sudo ldconfig",
            "sets it for all users",
            role=Role.ALTERNATIVE,
        ),
    ),
    url=LOADER,
    views=("host.libraries.unopened",),
)


def find(facts: Facts) -> Matches:
    yield from off_the_path(facts, CAUSE, runtime=True, packaged=None)
    yield from off_the_path(facts, CAUSE, runtime=False, packaged=False)
