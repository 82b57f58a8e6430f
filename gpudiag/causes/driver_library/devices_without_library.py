"""{devices} is in this container, the driver's library libcuda.so.1 is not

A GPU in a container needs the host's device files and the host's driver libraries, of the same version as its kernel
module. Mounting /dev/nvidia0 by hand brings the first alone; so does Apptainer, which shows the host's /dev and
brings the libraries with --nv, and the NVIDIA Container Toolkit where NVIDIA_DRIVER_CAPABILITIES leaves compute out.
TensorFlow says "failed call to cuInit: UNKNOWN ERROR (303)".
"""

from __future__ import annotations

from gpudiag.cause import Cause, Evidence, Match, Matches
from gpudiag.causes.shared.containers import GPU_NODE, TOOLKIT, container_facts, marks, node_paths, start
from gpudiag.hostfacts import Unknown

CAUSE = Cause(
    fix=(
        "{start}",
        "# not --device /dev/nvidia0: the toolkit brings devices and libraries of the host's driver together",
    ),
    url=TOOLKIT,
    shown={
        "start": "docker run --gpus all IMAGE   # compose: deploy.resources.reservations.devices, capabilities: [gpu]"
    },
    views=("host.driver.no_libcuda",),
)
CAPABILITIES = "NVIDIA_DRIVER_CAPABILITIES"


def find(evidence: Evidence) -> Matches:
    facts = evidence.facts
    container = container_facts(facts)
    if container is None or isinstance(facts.driver, Unknown) or facts.driver.libcuda_path is not None:
        return
    here = facts.library("libcuda.so.1")
    if here is not None and here.instead is not None:  # hidden by a damaged one: told by another rule
        return
    devices = [path for path in node_paths(facts) if GPU_NODE.fullmatch(path)]
    capabilities = facts.variables.get(CAPABILITIES)
    left_out = capabilities and not {"all", "compute"} & set(capabilities.split(","))
    if devices:
        yield Match(
            evidence=(
                marks(container),
                f"devices: {' '.join(node_paths(facts))}",
                f"libcuda.so.1: {facts.driver.libcuda_error}",
                "NVML: " + ("answers" if facts.nvml_devices else getattr(facts.nvml, "error", None) or "not known"),
                *([f"{CAPABILITIES}={capabilities!r}: without compute, no libcuda"] if left_out else []),
            ),
            figures={
                "start": start(container, **({CAPABILITIES: "compute,utility"} if left_out else {})),
                "devices": " ".join(devices),
            },
        )
