"""a library is installed in a folder where this TensorFlow does not look

TensorFlow's file libtensorflow_framework.so.2 names the folders of site-packages in which NVIDIA's packages
put their libraries (its RUNPATH). In the wheel of 2.21.0 nvidia/cusolver/lib is not among them, so a clean `pip
install tensorflow[and-cuda]` has every package and still uses no GPU; 2.20.0 names it. The log says "Cannot dlopen
some GPU libraries" and not which. LD_LIBRARY_PATH is searched as well, and the loader reads it when the process
starts: setting it in Python comes too late.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Matches
from gpudiag.causes.shared.libraries import PIP_INSTALLATION, off_the_path
from gpudiag.fix import Role, edit, install, prepend
from gpudiag.model.facts import Facts

CAUSE = Cause(
    title="{names} is installed in {folders}, where TensorFlow {tensorflow} does not look",
    fix=(
        prepend("LD_LIBRARY_PATH", "{folders}"),
        edit(
            "import ctypes; ctypes.CDLL('{path}', mode=ctypes.RTLD_GLOBAL)",
            "put it first into the program",
            role=Role.ALTERNATIVE,
        ),
        install("tensorflow[and-cuda]==2.20.0", note="or install the previous release, which searches that folder"),
    ),
    url=PIP_INSTALLATION,
    views=("host.libraries.unopened",),
)


def find(facts: Facts) -> Matches:
    yield from off_the_path(facts, CAUSE, runtime=False, packaged=True)
