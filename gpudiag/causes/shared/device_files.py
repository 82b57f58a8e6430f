"""Shared by causes: device files that are missing or may not be opened, and a GPU that the driver refuses."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpudiag.cause import Evidence, Match
from gpudiag.causes.shared.machine import WholeDriver, container, kept_for_others, on_the_bus, stage_of_driver
from gpudiag.causes.shared.signs import Signs
from gpudiag.causes.shared.steps import cuinit_error
from gpudiag.fix import Action, Where, configure, note, start
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.facts import DeviceNode, DeviceNodeFacts, DriverFacts, NvmlFacts, Unknown
from gpudiag.text import counted

DRIVER_DOCUMENT = "https://download.nvidia.com/XFree86/Linux-x86_64/535.104.05/README/"
_GPU_FILE = re.compile(r"/dev/nvidia\d+")
_CONTROL_FILE = "/dev/nvidiactl"
_UVM_FILE = "/dev/nvidia-uvm"


@dataclass(frozen=True)
class NoDevice:
    """CUDA finds no GPU, though the driver runs, outside a container.

    The device files may be made at the first use of CUDA, so that they count only if CUDA has failed. Files that may
    not be opened, and a GPU that is kept for something else, are other causes.
    """

    error: str
    """The error that ``cuInit`` returned."""
    driver: DriverFacts
    nvml: NvmlFacts
    nodes: DeviceNodeFacts
    missing: tuple[str, ...]
    """The device files without which no GPU can be reached, and that do not exist."""

    @classmethod
    def of(cls, evidence: Evidence) -> NoDevice | None:
        known, error = WholeDriver.of(evidence), cuinit_error(evidence.listing)
        if known is None or known.container or not error or known.driver.kernel_module is None:
            return None
        nodes, signs = known.nodes, Signs.of(evidence)
        if (signs is not None and signs.shut_files) or kept_for_others(nodes):
            return None
        paths = [node.path for node in nodes.nodes]
        missing = [] if any(map(_GPU_FILE.fullmatch, paths)) else ["/dev/nvidia0"]
        missing += [] if _CONTROL_FILE in paths else [_CONTROL_FILE]
        return cls(error, known.driver, known.nvml, nodes, tuple(missing))

    @property
    def with_all_files(self) -> bool:
        """True if every file exists, ``nvidia-uvm`` included, and CUDA reports no GPU, or gives no reason."""
        here = not self.missing and any(node.path == _UVM_FILE for node in self.nodes.nodes)
        return here and re.search("NO_DEVICE|ERROR_UNKNOWN", self.error) is not None

    def match(self, confidence: Confidence) -> Match:
        nvml, nodes = self.nvml, self.nodes
        gpus = nodes.pci_gpus or tuple(device.pci_bus_id for device in nvml.devices)
        answer = f"fails: {nvml.error}" if nvml.error else f"reports {counted(len(nvml.devices), 'GPU')}"
        return Match(
            evidence=(
                f"cuInit: {self.error}",
                on_the_bus(nodes) if nodes.pci_gpus else f"NVML: {', '.join(gpus)}",
                f"device files: {', '.join(node.path for node in nodes.nodes) or 'none'}",
                f"kernel module {self.driver.kernel_module}; NVML {answer}",
            ),
            confidence=confidence,
            figures={
                "pci": ", ".join(gpus),
                "module": self.driver.kernel_module,
                "gpus": len(nvml.devices),
                "missing": " and no ".join(self.missing),
                "error": nvml.error,
            },
        )


@dataclass(frozen=True)
class NoAccess:
    """Device files that this user may not open, and TensorFlow lists no GPU."""

    evidence: Evidence
    nodes: DeviceNodeFacts
    shut: tuple[DeviceNode, ...]

    @classmethod
    def of(cls, evidence: Evidence) -> NoAccess | None:
        signs = Signs.of(evidence)
        if signs is None or (evidence.trace is not None and evidence.trace.listed):
            return None
        shut = tuple(node for node in signs.nodes.nodes if node.path in signs.shut_files)
        return cls(evidence, signs.nodes, shut) if shut else None

    @property
    def by_their_mode(self) -> tuple[DeviceNode, ...]:
        """Device files that this user may not open because of their permissions."""
        system = self.evidence.facts.system
        # Permissions never keep root out. Of files of another machine no group is known, and nobody is root there.
        root = bool(self.nodes.groups) and not isinstance(system, Unknown) and system.user == "root"
        return () if root else tuple(node for node in self.shut if not permitted(node, self.nodes))

    @property
    def by_their_group(self) -> tuple[DeviceNode, ...]:
        """Device files that members of their group may open."""
        return tuple(node for node in self.by_their_mode if node.mode[4:6] == "rw" and node.group not in ("root", ""))

    @property
    def user(self) -> str:
        system = self.evidence.facts.system
        return "$USER" if isinstance(system, Unknown) else system.user

    def join(self, group: str) -> tuple[Action, Action]:
        """Return how the user joins a group."""
        if container(self.evidence.facts):
            number = f"$(getent group {group} | cut -d: -f3)"
            return (
                start(f"docker run --group-add {number} ...", "the number is the host's"),
                note("in Kubernetes: securityContext.supplementalGroups", where=Where.SCHEDULER),
            )
        return configure(f"sudo usermod -aG {group} {self.user}"), note("log in again")

    def match(self, shut: tuple[DeviceNode, ...], fix: tuple[Action | None, ...] = ()) -> Match:
        """Return the match of a cause that prevents opening these ``shut`` files."""
        groups = ", ".join(self.nodes.groups) or "no group that is known"
        return Match(
            evidence=(
                *(f"{node.mode} {node.path}, of the group {node.group or '?'}" for node in shut),
                f"this process is of the user {self.user} and in {groups}",
            ),
            figures={
                "files": " ".join(node.path for node in shut),
                "user": self.user,
                "group": shut[0].group,
            },
            fix=fix,
            stage=stage_of_driver(self.evidence.listing),
        )


def permitted(node: DeviceNode, nodes: DeviceNodeFacts) -> bool:
    """Return whether the permissions of ``node`` let this process read and write it."""
    return node.mode[7:9] == "rw" or (node.mode[4:6] == "rw" and node.group in nodes.groups)
