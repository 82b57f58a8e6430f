"""What several families of rules ask of a machine, and machines for their cases."""

from __future__ import annotations

import re
from collections.abc import Iterable

from gpudiag.cause import Evidence, Listing
from gpudiag.causes.shared.steps import cuinit_error
from gpudiag.knowledge.message import Event, Message
from gpudiag.model.diagnosis import Stage
from gpudiag.model.facts import DeviceNodeFacts, DriverFacts, Facts, NvmlDevice, NvmlFacts, Unknown
from gpudiag.model.report import Gpu
from gpudiag.model.visibility import gpus_in_scope
from gpudiag.probes.discovery import logical_devices

INSTALLATION = "https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/"

_OWN_DRIVERS = ("nvidia", "nouveau")
"""Kernel drivers that make a GPU one of this machine's; any other, such as vfio-pci, keeps it for something else."""

Parts = tuple[DriverFacts, NvmlFacts, DeviceNodeFacts]


def parts(facts: Facts) -> Parts | None:
    """Return what is known of the driver; None if a part did not answer."""
    driver, nvml, nodes = facts.driver, facts.nvml, facts.device_nodes
    if isinstance(driver, Unknown) or isinstance(nvml, Unknown) or isinstance(nodes, Unknown):
        return None
    return driver, nvml, nodes


def container(facts: Facts) -> str | None:
    """Return what holds this process: a container's runtime, or Kubernetes; None outside a container."""
    inside = facts.container
    return None if isinstance(inside, Unknown) else inside.name


def kept_for_others(nodes: DeviceNodeFacts) -> bool:
    """Return True if a kernel driver that is not NVIDIA's keeps every GPU for something else."""
    return bool(nodes.pci_gpus) and all(nodes.bound.get(gpu, "nvidia") not in _OWN_DRIVERS for gpu in nodes.pci_gpus)


def on_the_bus(nodes: DeviceNodeFacts) -> str:
    """Return what the PCI bus has of NVIDIA, for a line of evidence."""
    drivers = sorted(set(nodes.bound.values()))
    return f"PCI bus: NVIDIA GPU {', '.join(nodes.pci_gpus)}" + (f", driven by {', '.join(drivers)}" if drivers else "")


def stage_of_driver(listing: Listing) -> Stage:
    """Return the first stage at which a driver that is there and fails shows it."""
    return Stage.DRIVER if cuinit_error(listing) else Stage.NVML


def operating_system(facts: Facts) -> tuple[str, str]:
    """Return the distribution and the release of the kernel."""
    system = facts.system
    return ("this system", "$(uname -r)") if isinstance(system, Unknown) else (system.os, system.kernel)


def uses_apt(facts: Facts) -> bool:
    """Return True on Debian and what comes from it."""
    return re.search("Ubuntu|Debian|Mint|Pop!_OS", operating_system(facts)[0]) is not None


def install_command(facts: Facts) -> str:
    """Return the command that installs NVIDIA's driver on this distribution."""
    name, kernel = operating_system(facts)
    for pattern, command in (
        ("Ubuntu|Mint", "sudo ubuntu-drivers install"),
        ("Debian", f"sudo apt install linux-headers-{kernel} nvidia-driver firmware-misc-nonfree  # non-free enabled"),
        ("Fedora", "sudo dnf install akmod-nvidia  # from RPM Fusion"),
        ("Red Hat|Rocky|Alma|CentOS", "sudo dnf module install nvidia-driver:latest-dkms  # NVIDIA's repository"),
    ):
        if re.search(pattern, name):
            return command
    return f"# install NVIDIA's driver for {name}: {INSTALLATION}"


def gpus_by_nvml(evidence: Evidence) -> list[tuple[Gpu, NvmlDevice]]:
    """Return each GPU in scope with what NVML says of it."""
    devices = {device.pci_bus_id: device for device in evidence.facts.nvml_devices}
    return [(gpu, devices[gpu.pci_bus_id]) for gpu in evidence.gpus if gpu.pci_bus_id in devices]


def hidden_and_free(evidence: Evidence) -> str:
    """Return the line that chooses GPUs which the mask hides and nobody uses by NVML; "" if there are none.

    None in a job of Slurm's: there the others are other jobs'.
    """
    facts = evidence.facts
    mask = facts.variables.get("CUDA_VISIBLE_DEVICES")
    if mask is None or isinstance(facts.container, Unknown) or facts.container.slurm_job is not None:
        return ""
    chosen = {gpu.pci_bus_id for gpu in evidence.gpus or gpus_in_scope(facts)}
    free = [
        device
        for device in facts.nvml_devices
        if device.pci_bus_id not in chosen
        and device.compute_mode in ("default", None)
        and device.mig_mode != "enabled"
        and not any(process.computes for process in device.processes)
        and device.memory_used_bytes < (device.memory_total_bytes / 4 if device.memory_total_bytes else 1)
    ]
    if not free:
        return ""
    indices = ", ".join(str(device.index) for device in free)
    uuids = ",".join(device.uuid for device in free)
    return f"export CUDA_VISIBLE_DEVICES={uuids}  # or GPU {indices}, hidden now by {mask!r}, if it is yours to use"


def failing_gpus(evidence: Evidence) -> list[Gpu]:
    """Return the GPUs in scope that are known to fail if TensorFlow's devices were tried; the only one is."""
    for reading in evidence.readings("discovery.logical_devices", logical_devices.Reading):
        raised = [pci for pci, one in zip(reading.given, reading.products.values(), strict=False) if one.raised]
        known = [gpu for gpu in evidence.gpus if gpu.pci_bus_id in (*reading.refused, *raised)]
        if known or reading.raised is None:
            return known
    return list(evidence.gpus) if len(evidence.gpus) == 1 else []


def reset_command(gpus: tuple[Gpu, ...], failing: Iterable[int | str]) -> str:
    """Return how to reset the GPUs of these indices of NVML's; no command if none is known to fail."""
    if indices := ",".join(map(str, failing)):
        return f"sudo nvidia-smi --gpu-reset -i {indices}  # or reboot: if its hardware or firmware has failed"
    of = ", ".join(str(gpu.index) for gpu in gpus)
    return f"# the GPU that fails is one of {of or 'those of nvidia-smi -L'}; dmesg names it by its PCI bus id"


def said(evidence: Evidence, message: Message) -> list[Event]:
    """Return the events of TensorFlow's own start, or else of the log of the user's program."""
    return evidence.listing.all(message) or evidence.program.all(message)
