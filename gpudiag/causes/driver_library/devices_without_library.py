"""a GPU is in this container, but the driver's library libcuda.so.1 is not

A GPU in a container needs the host's device files and the host's driver libraries, of the same version as its kernel
module. Mounting /dev/nvidia0 by hand brings the first alone; so does Apptainer, which shows the host's /dev and
brings the libraries with --nv, and the NVIDIA Container Toolkit if NVIDIA_DRIVER_CAPABILITIES leaves compute out.
TensorFlow says "failed call to cuInit: UNKNOWN ERROR (303)". The library may also be in a folder of the container that
only an LD_LIBRARY_PATH named, which something has replaced since.
"""

from __future__ import annotations

from pathlib import PurePath

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.containers import TOOLKIT, InContainer
from gpudiag.causes.shared.libraries import good_copy, put_first
from gpudiag.fix import Kind, note, run_container
from gpudiag.model.facts import DriverFacts, Facts

CAUSE = Cause(
    title="{devices} is in this container, but the driver's library libcuda.so.1 is {where}",
    fix=(
        run_container(
            "--gpus all", image="IMAGE", note="in Compose: deploy.resources.reservations.devices, capabilities: [gpu]"
        ),
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
    here = facts.library("libcuda.so.1")
    hidden = here is not None and here.instead is not None  # by a damaged one: that is another cause
    if driver.libcuda_path is not None or hidden or not inside.gpus:
        return
    copy = good_copy(here) if here else None
    add = put_first(facts, [str(PurePath(copy.path).parent)]) if copy else None
    capabilities = facts.variables.get(_CAPABILITIES)
    # NVML is what "utility" brings: with it and without libcuda the toolkit was asked for that alone, which older
    # toolkits do if the variable is not set.
    utility_alone = not capabilities and bool(facts.nvml_devices)
    left_out = utility_alone or (capabilities and not {"all", "compute"} & set(capabilities.split(",")))
    yield Match(
        evidence=(
            inside.marks,
            f"devices: {' '.join(inside.nodes)}",
            f"libcuda.so.1: {driver.libcuda_error}",
            "NVML: " + ("answers" if facts.nvml_devices else getattr(facts.nvml, "error", None) or "not known"),
            *([f"{copy.path} opens by its path"] if copy else []),
            *([f"{_CAPABILITIES}={capabilities or ''!r}: without compute, no libcuda"] if left_out else []),
        ),
        figures={
            "devices": " ".join(inside.gpus),
            "where": f"in {PurePath(copy.path).parent}, where the loader does not look"
            if copy
            else f"not: {_CAPABILITIES}={capabilities} leaves out compute"
            if left_out and capabilities
            else "not",
        },
        about=(_CAPABILITIES,) if left_out and not copy else (),
        fix=(add,) if add else (inside.start(**({_CAPABILITIES: "compute,utility"} if left_out else {})), CAUSE.fix[1]),
        tried=add,
    )
