"""Shared by causes: device files that are missing or may not be opened, and a GPU that the driver refuses."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpudiag.cause import Evidence, Match
from gpudiag.causes.shared.machine import WholeDriver, kept_for_others, on_the_bus
from gpudiag.causes.shared.signs import Signs
from gpudiag.causes.shared.steps import cuinit_error
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.facts import DeviceNodeFacts, DriverFacts, Facts, NvmlFacts, Unknown, is_gpu_file
from gpudiag.text import counted

DRIVER_DOCUMENT = "https://download.nvidia.com/XFree86/Linux-x86_64/535.104.05/README/"
_CONTROL_FILE = "/dev/nvidiactl"
_UVM_FILE = "/dev/nvidia-uvm"


@dataclass(frozen=True)
class NoDevice:
    """CUDA finds no GPU, though the driver runs, outside a container, or in one of gVisor's.

    The device files may be made at the first use of CUDA, so that they count only if CUDA has failed. Files that may
    not be opened, and a GPU that is kept for something else, are other causes.
    """

    facts: Facts
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
        if known is None or not error or known.driver.kernel_module is None:
            return None
        nodes, signs = known.nodes, Signs.of(evidence)
        if (signs is not None and signs.shut_files) or kept_for_others(nodes):
            return None
        paths = [node.path for node in nodes.nodes]
        missing = [] if any(map(is_gpu_file, paths)) else ["/dev/nvidia0"]
        missing += [] if _CONTROL_FILE in paths else [_CONTROL_FILE]
        inside = known.facts.container
        # gVisor's containers have the device files of the host, and a kernel of their own in place of its driver.
        in_gvisor = not isinstance(inside, Unknown) and inside.sandbox == "gvisor" and not missing
        if known.container and not in_gvisor:
            return None
        return cls(known.facts, error, known.driver, known.nvml, nodes, tuple(missing))

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
                "missing": " and ".join(self.missing),
                "error": nvml.error,
            },
        )
