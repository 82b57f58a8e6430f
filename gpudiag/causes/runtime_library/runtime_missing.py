"""libcudart.so.12 (CUDA runtime) was not found in this environment

Since 2.14 `pip install tensorflow` brings no CUDA libraries: they come with the extra, `tensorflow[and-cuda]`. Without
them the log says "Could not find cuda drivers on your machine, GPU will not be used", although nvidia-smi works.
Reinstalling the driver changes nothing; a CUDA 13 or CUDA 11 on the system does not help either, because the name of
the library has the release in it.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudiag.cause import Cause, Listing, Match, Matches
from gpudiag.causes.shared.files import repairs, shown
from gpudiag.causes.shared.libraries import (
    PIP_INSTALLATION,
    good_copy,
    problem,
    secure_loader,
    seen,
    then_cusolver,
    with_cuda,
)
from gpudiag.causes.shared.steps import cuinit_error
from gpudiag.fix import install, prepend
from gpudiag.model.facts import Facts, Unknown
from gpudiag.probes.host.libraries import PACKAGES, RUNTIME, installed, unopened
from gpudiag.text import counted

CAUSE = Cause(
    title="libcudart.so.12 (CUDA runtime) {problem}",
    fix=(
        install("tensorflow[and-cuda]==2.21.0"),
        prepend(
            "LD_LIBRARY_PATH",
            "/home/someone/venv/lib/python3.11/site-packages/nvidia/cusolver/lib",
            "run it then: this TensorFlow does not search that folder",
        ),
    ),
    url=PIP_INSTALLATION,
    views=("host.libraries.unopened",),
)


def find(facts: Facts, listing: Listing) -> Matches:
    for library in unopened(facts):
        if library.soname != RUNTIME or good_copy(library) is not None or library.instead is not None:
            continue
        package = installed(facts, RUNTIME)
        command = install(with_cuda(facts))
        if package is not None:
            command = install("--force-reinstall", "--no-deps", f"{package.name}=={package.version}")
        opened = repairs(library.files)
        ignored, secure = secure_loader(facts)
        yield Match(
            figures={"problem": problem([library], "was not found in this environment")},
            evidence=(
                seen(library),
                *shown([library]),
                f"{PACKAGES['libcudart']}: {f'{package.version}, but not its file' if package else 'not installed'}",
                *ignored,
                *_of_the_driver(facts, listing),
            ),
            fix=(*(opened or (command,)), *secure, then_cusolver(facts)),
        )


def _of_the_driver(facts: Facts, listing: Listing) -> Iterator[str]:
    """Yield evidence about the driver, which TensorFlow's log wrongly names for this fault."""
    if facts.nvml_devices and not isinstance(facts.nvml, Unknown):
        yield f"NVML of the driver answers: {facts.nvml.driver_version}, {counted(len(facts.nvml_devices), 'GPU')}"
    if error := cuinit_error(listing):
        yield f"cuInit of the driver fails, too: {error}"
