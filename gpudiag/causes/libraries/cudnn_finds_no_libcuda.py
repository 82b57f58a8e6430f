"""libcuda.so, which cuDNN opens, was not found: the loader finds only libcuda.so.1

cuDNN 8 asks for libcuda.so when the first convolution runs, and the process ends with "Aborted". The driver's package
for development has that link; under WSL it lies in /usr/lib/wsl/lib, which the loader does not search.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches, Program
from gpudiag.fix import configure, prepend, run
from gpudiag.knowledge.messages.way import NO_LIBCUDA_LINK
from gpudiag.knowledge.origin import Origin
from gpudiag.model.diagnosis import Confidence

CAUSE = Cause(
    fix=(
        prepend("LD_LIBRARY_PATH", "/usr/lib/wsl/lib", "under WSL"),
        configure("sudo ln -s libcuda.so.1 /usr/lib/x86_64-linux-gnu/libcuda.so; sudo ldconfig", "elsewhere"),
    ),
    url="https://github.com/microsoft/WSL/issues/8587",
    needs_gpu=False,
)


def find(program: Program, origin: Origin) -> Matches:
    if said := program.said(NO_LIBCUDA_LINK):
        link = "sudo ln -s libcuda.so.1 /usr/lib/x86_64-linux-gnu/libcuda.so; sudo ldconfig"
        wsl = "export LD_LIBRARY_PATH=/usr/lib/wsl/lib:$LD_LIBRARY_PATH"
        yield Match(said, Confidence.PROVED, fix=(run(wsl, "under WSL"), run(link, "elsewhere")))
