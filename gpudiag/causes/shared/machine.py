"""Shared by causes: properties of a machine that many causes ask for."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpudiag.cause import Evidence, Listing, Program
from gpudiag.causes.shared.steps import cuinit_error
from gpudiag.fix import Action, Kind, note, run
from gpudiag.knowledge.message import Event, Message
from gpudiag.knowledge.systems import OTHER, system_of
from gpudiag.model.diagnosis import Stage
from gpudiag.model.facts import DeviceNodeFacts, DriverFacts, Facts, NvmlFacts, Unknown

INSTALLATION = "https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/"

_OWN_DRIVERS = ("nvidia", "nouveau")
"""Kernel drivers that make a GPU one of this machine's; any other, such as vfio-pci, keeps it for something else."""


@dataclass(frozen=True)
class WholeDriver:
    """NVIDIA's driver, if all its parts have answered."""

    facts: Facts
    driver: DriverFacts
    nvml: NvmlFacts
    nodes: DeviceNodeFacts

    @classmethod
    def of(cls, evidence: Evidence) -> WholeDriver | None:
        facts = evidence.facts
        driver, nvml, nodes = facts.driver, facts.nvml, facts.device_nodes
        if isinstance(driver, Unknown) or isinstance(nvml, Unknown) or isinstance(nodes, Unknown):
            return None
        return cls(facts, driver, nvml, nodes)

    @property
    def container(self) -> str | None:
        """The container's runtime, or Kubernetes, around this process; None outside a container."""
        return container(self.facts)

    def counts(self, pci_bus_id: str) -> bool:
        """Return whether NVML counts this GPU."""
        return pci_bus_id.lower() in {device.pci_bus_id.lower() for device in self.nvml.devices}


def container(facts: Facts) -> str | None:
    """Return the container's runtime, or Kubernetes, around this process; None outside a container."""
    inside = facts.container
    return None if isinstance(inside, Unknown) else inside.name


def kept_for_others(nodes: DeviceNodeFacts) -> bool:
    """Return True if a kernel driver that is not NVIDIA's keeps every GPU for something else."""
    return bool(nodes.pci_gpus) and all(nodes.bound.get(gpu, "nvidia") not in _OWN_DRIVERS for gpu in nodes.pci_gpus)


def on_the_bus(nodes: DeviceNodeFacts) -> str:
    """Return the NVIDIA devices on the PCI bus, as a line of evidence."""
    drivers = sorted(set(nodes.bound.values()))
    return f"PCI bus: NVIDIA GPU {', '.join(nodes.pci_gpus)}" + (f", driven by {', '.join(drivers)}" if drivers else "")


def stage_of_driver(listing: Listing) -> Stage:
    """Return the first stage at which a failing driver shows."""
    return Stage.DRIVER if cuinit_error(listing) else Stage.NVML


def operating_system(facts: Facts) -> tuple[str, str]:
    """Return the distribution and the release of the kernel."""
    system = facts.system
    return ("this system", "$(uname -r)") if isinstance(system, Unknown) else (system.os, system.kernel)


def uses_apt(facts: Facts) -> bool:
    """Return True on Debian and its derivatives."""
    system = system_of(operating_system(facts)[0])
    return system is not None and system.name == "Debian"


def install_command(facts: Facts) -> Action:
    """Return the command that installs NVIDIA's driver on this distribution."""
    name, kernel = operating_system(facts)
    system, change = system_of(name) or OTHER, Kind.CHANGE_DRIVER
    if "Ubuntu" in name or "Mint" in name:
        return run("sudo ubuntu-drivers install", kind=change)
    if "Debian" in name:
        packages = f"linux-headers-{kernel} nvidia-driver firmware-misc-nonfree"
        return run(f"sudo apt install {packages}", "non-free enabled", kind=change)
    if system.name == "Arch":
        return run(f"sudo pacman -S nvidia-dkms {_headers(kernel)}", kind=change)
    if system.driver:
        return system.driver
    return note(f"install NVIDIA's driver for {name}: {INSTALLATION}", kind=change)


def build_command(facts: Facts) -> Action:
    """Return the command that builds NVIDIA's kernel module for the running kernel on this distribution."""
    name, kernel = operating_system(facts)
    command = (system_of(name) or OTHER).build.format(kernel=kernel, headers=_headers(kernel))
    if not command:
        return note(f"build the driver's module for the kernel {kernel} as {name} does", kind=Kind.CHANGE_DRIVER)
    return run(command, "or run: sudo akmods" if command.startswith("sudo dnf") else "", kind=Kind.CHANGE_DRIVER)


def _headers(kernel: str) -> str:
    """Return the package of Arch with the headers of this kernel: those of linux-zen are linux-zen-headers."""
    flavour = re.search(r"-(lts|zen|hardened|cachyos|rt)(?:-|$)", kernel)
    return f"linux-{flavour[1]}-headers" if flavour else "linux-headers"


def said(listing: Listing, program: Program, message: Message) -> list[Event]:
    """Return the events of TensorFlow's own start, or else of the log of the user's program."""
    return listing.all(message) or program.all(message)
