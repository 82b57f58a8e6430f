"""Shared by causes: the Windows Subsystem for Linux."""

from __future__ import annotations

from dataclasses import dataclass

from gpudiag.cause import Evidence, Fix, Match
from gpudiag.causes.shared.machine import WholeDriver
from gpudiag.causes.shared.steps import cuinit_error
from gpudiag.fix import Action, Kind, run
from gpudiag.model.diagnosis import Confidence, Stage
from gpudiag.model.facts import DeviceNodeFacts, DriverFacts, NvmlFacts, SystemFacts

FOLDER = "/usr/lib/wsl/lib"
URL = "https://docs.nvidia.com/cuda/wsl-user-guide/index.html"
DXG = "/dev/dxg"
_PATH = "LD_LIBRARY_PATH"


@dataclass(frozen=True)
class Wsl:
    """A distribution under WSL that Windows's NVIDIA driver, which is installed, does not reach."""

    evidence: Evidence
    system: SystemFacts
    driver: DriverFacts
    nvml: NvmlFacts
    nodes: DeviceNodeFacts

    @classmethod
    def of(cls, evidence: Evidence) -> Wsl | None:
        known, system = WholeDriver.of(evidence), evidence.facts.system
        if known is None or not isinstance(system, SystemFacts) or not system.wsl or known.container:
            return None
        driver = known.driver
        works = driver.libcuda_path is not None and not cuinit_error(evidence.listing)
        if works or not (driver.wsl_library or driver.windows_driver):
            return None
        return cls(evidence, system, driver, known.nvml, known.nodes)

    @property
    def has_device(self) -> bool:
        """True if the device file of the GPU exists."""
        return any(node.path == DXG for node in self.nodes.nodes)

    @property
    def has_folder(self) -> bool:
        """True if the device file and the folder of the driver's libraries exist."""
        return self.has_device and self.driver.wsl_library is not None

    @property
    def uses_folder(self) -> bool:
        """True if the driver's library is loaded from that folder."""
        return (self.driver.libcuda_path or "").startswith("/usr/lib/wsl/")

    @property
    def remove(self) -> Action:
        """The command that removes the Linux driver."""
        if self.driver.packages:
            return run(f"sudo apt purge {' '.join(self.driver.packages)} && sudo apt autoremove", kind=Kind.REMOVE)
        return run("sudo nvidia-uninstall", f"which takes {self.driver.libcuda_path} away", kind=Kind.REMOVE)

    def match(self, confidence: Confidence, *, tried: Action | None = None, fix: Fix = ()) -> Match:
        """Return the match of a cause."""
        driver, error = self.driver, cuinit_error(self.evidence.listing)
        installed = [f"{name} {version}" for name, version in driver.packages.items()]
        path = ":".join(filter(None, (FOLDER, self.evidence.facts.variables.get(_PATH, ""))))
        return Match(
            evidence=(
                f"kernel {self.system.kernel}; device files: "
                f"{', '.join(node.path for node in self.nodes.nodes) or 'none'}",
                f"from Windows: {driver.wsl_library or driver.windows_driver}",
                f"libcuda.so.1: {driver.libcuda_path or driver.libcuda_error}",
                *([f"installed here: {', '.join(installed)}"] if installed else []),
                *([f"cuInit: {error}"] if error else []),
            ),
            confidence=confidence,
            figures={
                "kernel": self.system.kernel,
                "path": path,
                "library": driver.libcuda_path or "a Linux driver",
            },
            tried=tried,
            fix=fix,
            stage=Stage.DRIVER_LIBRARY if driver.libcuda_path is None else Stage.DRIVER,
        )
