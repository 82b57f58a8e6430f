"""the driver's compute library libcuda.so.1 was not found, though the driver's kernel module runs

Distributions split NVIDIA's driver into packages, and the one with libcuda.so.1 may be left out: a server, or a desktop
that only draws, does not need it. nvidia-smi works, because it needs NVML alone; cuInit fails with "UNKNOWN ERROR
(303)". The CUDA libraries that pip installs do not contain it, and must not: it belongs to the driver.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.libraries import COMPUTE, answer_of_nvml, seen
from gpudiag.causes.shared.machine import INSTALLATION, container
from gpudiag.causes.shared.signs import Signs
from gpudiag.causes.shared.whereabouts import installed, locate
from gpudiag.fix import Kind, run
from gpudiag.model.facts import Facts

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
    found = locate(facts, COMPUTE)
    yield Match(
        evidence=(
            seen(library) if library and library.error else f"{COMPUTE}: {driver.libcuda_error}",
            *found.evidence,
            f"kernel module {driver.kernel_module or 'not known'}; {answer_of_nvml(facts)}",
        ),
        confidence=found.confidence,
        figures={"module": driver.kernel_module or "", "where": found.words},
        fix=found.fix or (installed(facts, COMPUTE),),
        tried=found.tried,
    )
