"""a GPU is in this container, but the driver's library libcuda.so.1 is not

A GPU in a container needs the host's device files and the host's driver libraries, of the same version as its kernel
module. Mounting /dev/nvidia0 by hand brings the first alone; so does Apptainer, which shows the host's /dev and
brings the libraries with --nv, and the NVIDIA Container Toolkit if NVIDIA_DRIVER_CAPABILITIES leaves compute out.
TensorFlow says "failed call to cuInit: UNKNOWN ERROR (303)". The library may also be in a folder of the container that
only an LD_LIBRARY_PATH named, which something has replaced since.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.containers import TOOLKIT, InContainer
from gpudiag.causes.shared.libraries import COMPUTE
from gpudiag.causes.shared.whereabouts import locate
from gpudiag.fix import Kind, note
from gpudiag.knowledge.sandboxes import BY_NAME
from gpudiag.model.facts import DriverFacts, Facts

CAUSE = Cause(
    title="{devices} is in this container, but the driver's library libcuda.so.1 {where}",
    fix=(
        BY_NAME["docker"].give,
        note(
            "not --device /dev/nvidia0: the toolkit brings devices and libraries of the host's driver together",
            kind=Kind.START_CONTAINER,
        ),
    ),
    url=TOOLKIT,
    views=("host.driver.no_libcuda",),
)
_CAPABILITIES = "NVIDIA_DRIVER_CAPABILITIES"


def find(inside: InContainer, facts: Facts, driver: DriverFacts) -> Matches:
    library = facts.library(COMPUTE)
    hidden = library is not None and library.instead is not None  # by a damaged one: that is another cause
    if driver.libcuda_path is not None or hidden or not inside.gpus:
        return
    found = locate(facts, COMPUTE)
    capabilities = facts.variables.get(_CAPABILITIES)
    # NVML is what "utility" brings: with it and without libcuda the toolkit was asked for that alone, which older
    # toolkits do if the variable is not set.
    utility_alone = not capabilities and bool(facts.nvml_devices)
    given = set((capabilities or "").split(","))
    left_out = found.is_absent and bool(utility_alone or (capabilities and not {"all", "compute"} & given))
    start = inside.start(**({_CAPABILITIES: "compute,utility"} if left_out else {}))
    yield Match(
        evidence=(
            inside.marks,
            *found.evidence,
            f"devices: {' '.join(inside.nodes)}",
            f"{COMPUTE}: {driver.libcuda_error}",
            "NVML: " + ("answers" if facts.nvml_devices else getattr(facts.nvml, "error", None) or "not known"),
            *([f"{_CAPABILITIES}={capabilities or ''!r}: without compute, no libcuda"] if left_out else []),
        ),
        confidence=found.confidence,
        figures={
            "devices": " ".join(inside.gpus),
            "where": f"is not: {_CAPABILITIES}={capabilities} leaves out compute"
            if left_out and capabilities
            else "is not"
            if found.is_absent
            else found.words,
        },
        about=(_CAPABILITIES,) if left_out else (),
        fix=(start, CAUSE.fix[1]) if found.is_absent else found.fix,
        tried=found.tried,
    )
