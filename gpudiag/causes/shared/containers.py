"""Shared by causes: GPUs of the host that do not reach a container."""

from __future__ import annotations

import re

from gpudiag.cause import Evidence
from gpudiag.hostfacts import ContainerFacts, Facts, Unknown
from gpudiag.model import Stage

VISIBLE = "NVIDIA_VISIBLE_DEVICES"
GPU_NODE = re.compile(r"/dev/(nvidia\d+|dxg)")
CONTROL = "/dev/nvidiactl"
UNIFIED_MEMORY = "/dev/nvidia-uvm"
NONE = ("", "void", "none")
"""Values of NVIDIA_VISIBLE_DEVICES that give no GPU."""
CUINIT_FAILED = "Failed call to cuInit: "
DOCKER = "docker run --gpus all IMAGE   # compose: deploy.resources.reservations.devices, capabilities: [gpu]"
START = {
    "podman": "podman run --device nvidia.com/gpu=all IMAGE",
    "apptainer": "apptainer exec --nv IMAGE COMMAND",
    "singularity": "singularity exec --nv IMAGE COMMAND",
    "containerd": "nerdctl run --gpus all IMAGE",
    "lxc": "lxc config device add NAME gpu gpu; lxc config set NAME nvidia.runtime true; lxc restart NAME",
    "kubernetes": "resources: {limits: {nvidia.com/gpu: 1}}   # in the container's part of the pod",
}
"""How each runtime is told to give GPUs."""
TOOLKIT = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html"
PODS = "https://kubernetes.io/docs/tasks/manage-gpus/scheduling-gpus/"


def container_facts(facts: Facts) -> ContainerFacts | None:
    """Return the facts of the container that this process is in, or None where it is in none."""
    found = facts.container
    return None if isinstance(found, Unknown) or found.name is None else found


def marks(container: ContainerFacts) -> str:
    return f"in a container: {', '.join([*container.evidence, *['Kubernetes'] * container.kubernetes])}"


def start(container: ContainerFacts, **variables: str) -> str:
    """Return how a container is started with GPUs under this runtime, and with such variables."""
    told = "".join(f"-e {name}={value} " for name, value in variables.items())
    how = START["kubernetes"] if container.kubernetes else START.get(container.name or "", DOCKER)
    return how.replace("--gpus all ", f"--gpus all {told}")


def node_paths(facts: Facts) -> tuple[str, ...]:
    return () if isinstance(facts.device_nodes, Unknown) else tuple(node.path for node in facts.device_nodes.nodes)


def given_none(evidence: Evidence) -> bool:
    """Return True where it is known that no device of a GPU is here, and TensorFlow lists none by another name."""
    facts = evidence.facts
    known = not isinstance(facts.device_nodes, Unknown)
    listed = evidence.trace.listed if evidence.trace else 0
    return known and not listed and not facts.nvml_devices and not any(map(GPU_NODE.fullmatch, node_paths(facts)))


def gpu_of_the_host(facts: Facts) -> str:
    """Say what shows that the host has a GPU: its PCI bus and its kernel modules are seen from containers, too."""
    if not isinstance(facts.device_nodes, Unknown) and facts.device_nodes.pci_gpus:
        return f"the host has {len(facts.device_nodes.pci_gpus)} GPU(s): PCI {' '.join(facts.device_nodes.pci_gpus)}"
    if not isinstance(facts.driver, Unknown) and facts.driver.kernel_module:
        return f"the host runs NVIDIA's kernel module {facts.driver.kernel_module}"
    return ""


def libcuda_path(facts: Facts) -> str | None:
    return None if isinstance(facts.driver, Unknown) else facts.driver.libcuda_path


def stage(facts: Facts) -> Stage:
    """Return where the lack of devices shows: the toolkit that gives none brings no library either, an image may."""
    return Stage.DRIVER_LIBRARY if libcuda_path(facts) is None else Stage.DRIVER


def no_device_seen(facts: Facts) -> str:
    library = libcuda_path(facts)
    return f"no /dev/nvidia0 or the like here; {'no libcuda.so.1' if library is None else f'{library} is here'}"


def asked(facts: Facts) -> tuple[str, ...]:
    value = facts.variables.get(VISIBLE)
    return () if value is None else (f"{VISIBLE}={value!r}",)


def initialisation(evidence: Evidence) -> str:
    """Return how cuInit failed; "" where it did not, or was not reached."""
    for line in evidence.trace.lines if evidence.trace else ():
        _, failed, error = line.text.partition(CUINIT_FAILED)
        if failed:
            return error
    return ""
