"""the driver's compute library libcuda.so.1 was not found, though the driver's kernel module runs

Distributions split NVIDIA's driver into packages, and the one with libcuda.so.1 may be left out: a server, or a desktop
that only draws, does not need it. nvidia-smi works, because it needs NVML alone; cuInit fails with "UNKNOWN ERROR
(303)". The CUDA libraries that pip installs do not contain it, and must not: it belongs to the driver.
"""

from __future__ import annotations

from pathlib import PurePath

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.files import shown
from gpudiag.causes.shared.libraries import COMPUTE, cure_of_the_driver, good_copy, seen, stale_cache
from gpudiag.causes.shared.machine import INSTALLATION, container
from gpudiag.causes.shared.signs import Signs
from gpudiag.fix import Kind, run
from gpudiag.model.facts import Facts
from gpudiag.text import counted

CAUSE = Cause(
    title="the driver's compute library libcuda.so.1 {where}, though the driver's kernel module {module} runs",
    fix=(run("sudo apt-get install libcuda1", kind=Kind.INSTALL_AS_ROOT),),
    url=INSTALLATION,
    needs_gpu=False,
    views=("host.driver.no_libcuda",),
    unless={
        "vgpu_host": "the driver of a vGPU host has no library for computing",
    },
)


def find(facts: Facts, signs: Signs) -> Matches:
    facts, driver, library = signs.facts, signs.driver, signs.facts.library(COMPUTE)
    if not signs.no_libcuda:
        return
    runs = driver.kernel_module is not None or bool(facts.nvml_devices)
    if not runs or container(facts) or (library is not None and library.instead is not None):
        return  # not loaded, given to a container, or hidden: each is another cause
    copy = good_copy(library) if library else None
    where = f"is in {PurePath(copy.path).parent}, where the loader does not look" if copy else "is not here"
    if copy is None and library is not None and library.path is not None:
        where = f"cannot be opened ({library.path})"
    elif copy is None and library is not None and library.files:
        where = f"cannot be used: {library.files[0].sentence}"
    stale = stale_cache(facts, str(PurePath(copy.path).parent)) if copy else ""
    cure = cure_of_the_driver(facts, COMPUTE, copy)
    yield Match(
        evidence=(
            seen(library) if library and library.error else f"{COMPUTE}: {driver.libcuda_error}",
            *(shown([library]) if library else ()),
            *([stale] if stale else []),
            f"kernel module {driver.kernel_module or 'not known'}; "
            f"NVML reports {counted(len(facts.nvml_devices), 'GPU')}",
        ),
        figures={"module": driver.kernel_module or "", "where": where},
        fix=(cure,),
        tried=cure if copy and cure.change else None,
    )
