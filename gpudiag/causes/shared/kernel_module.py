"""Shared by causes: NVIDIA's driver is not installed, or its kernel module not loaded."""

from __future__ import annotations

from gpudiag.cause import Evidence, Fix, Match
from gpudiag.causes.shared.machine import (
    WholeDriver,
    kept_for_others,
    on_the_bus,
    operating_system,
)
from gpudiag.causes.shared.signs import Signs
from gpudiag.model.diagnosis import Confidence, Stage


class IdleGpu(WholeDriver):
    """A GPU on the PCI bus that NVIDIA's driver does not drive."""

    def match(self, sign: str = "", confidence: Confidence = Confidence.PROVED, fix: Fix = ()) -> Match:
        """Return the match of a cause, with ``sign`` as its evidence."""
        name, kernel = operating_system(self.facts)
        pci = self.nodes.pci_gpus[0]
        loaded = "loaded" if self.driver.kernel_module else "not loaded"
        library = self.driver.libcuda_path or self.driver.libcuda_error
        return Match(
            evidence=(
                on_the_bus(self.nodes),
                f"NVIDIA's kernel module is {loaded}; libcuda.so.1: {library}",
                *([sign] if sign else []),
            ),
            confidence=confidence,
            figures={
                "pci": pci,
                "holder": self.nodes.bound.get(pci, ""),
                "kernel": kernel,
                "key": "/var/lib/shim-signed/mok/MOK.der" if "Ubuntu" in name else "/var/lib/dkms/mok.pub",
            },
            fix=fix,
            stage=Stage.DRIVER_LIBRARY if self.driver.libcuda_path is None else Stage.DRIVER,
        )


class KeptGpu(IdleGpu):
    """A GPU that a kernel driver which is not NVIDIA's keeps for something else."""

    @classmethod
    def of(cls, evidence: Evidence) -> KeptGpu | None:
        idle = super().of(evidence)
        if idle is None or not kept_for_others(idle.nodes) or idle.nvml.devices or idle.container:
            return None
        return cls(idle.facts, idle.driver, idle.nvml, idle.nodes)


class GpuWithoutModule(IdleGpu):
    """A GPU on the PCI bus for which NVIDIA's kernel module is not loaded, and that is not kept for something else."""

    @classmethod
    def of(cls, evidence: Evidence) -> GpuWithoutModule | None:
        signs = Signs.of(evidence)
        if signs is None or not signs.no_module or not signs.nodes.pci_gpus or KeptGpu.of(evidence):
            return None
        return cls(signs.facts, signs.driver, signs.nvml, signs.nodes)


class InstalledDriver(GpuWithoutModule):
    """A GPU without a loaded kernel module on a machine where NVIDIA's driver is installed."""

    @classmethod
    def of(cls, evidence: Evidence) -> InstalledDriver | None:
        one = super().of(evidence)
        return (
            None if one is None or one.driver.libcuda_path is None else cls(one.facts, one.driver, one.nvml, one.nodes)
        )

    @property
    def nouveau(self) -> bool:
        """True if the free driver nouveau is loaded, or holds a GPU."""
        return "nouveau" in self.driver.modules or "nouveau" in self.nodes.bound.values()


class UnloadedModule(InstalledDriver):
    """An idle GPU that neither nouveau nor prime-select explains: its module was not built, or was refused."""

    @classmethod
    def of(cls, evidence: Evidence) -> UnloadedModule | None:
        one = super().of(evidence)
        return (
            None
            if one is None or one.nouveau or one.driver.prime == "intel"
            else cls(one.facts, one.driver, one.nvml, one.nodes)
        )
