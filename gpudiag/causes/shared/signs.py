"""Shared by causes: signs of a fault in the facts about NVIDIA's driver. A sign may have several causes."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpudiag.cause import Evidence
from gpudiag.causes.shared.machine import WholeDriver
from gpudiag.model.facts import Unknown, is_gpu_file
from gpudiag.model.missing import lost_gpus
from gpudiag.probes.host.driver import concerns

NO_NVML = "NVML Shared Library Not Found"
"""NVML's error if its library cannot be opened."""
_CONTROL_FILES = ("/dev/nvidiactl", "/dev/nvidia-uvm")


@dataclass(frozen=True)
class Signs(WholeDriver):
    """A machine with NVIDIA hardware, or with its driver in the kernel, about which all facts are known."""

    @classmethod
    def of(cls, evidence: Evidence) -> Signs | None:
        known = super().of(evidence)
        return cls(known.facts, known.driver, known.nvml, known.nodes) if known and concerns(known.facts) else None

    @property
    def not_given(self) -> bool:
        """True if this is a container without any device of the GPUs of its host."""
        return self.container is not None and not self.nodes.nodes and not self.nvml.devices

    @property
    def no_module(self) -> bool:
        """True if NVIDIA's kernel module is not loaded."""
        missing = self.driver.kernel_module is None and not self.nodes.nodes and self.nvml.error is not None
        return missing and not self.not_given

    @property
    def _reached(self) -> bool:
        return not self.not_given and not self.no_module

    @property
    def no_libcuda(self) -> bool:
        """True if the library of the driver cannot be opened."""
        return self._reached and self.driver.libcuda_path is None

    @property
    def libcuda_fails(self) -> bool:
        """True if the library of the driver opens but does not work."""
        return self._reached and self.driver.libcuda_path is not None and bool(self.driver.libcuda_error)

    @property
    def two_versions(self) -> str:
        """Evidence that the kernel module and the libraries have different versions, or ""."""
        module, named = self.driver.kernel_module, self.nvml.driver_version
        differ = None not in (module, named) and module != named
        # NVML 18 is "Driver/library version mismatch" for nvidia-smi, "NVML/RM version mismatch" for pynvml.
        if not self._reached or not (differ or "version mismatch" in (self.nvml.error or "")):
            return ""
        in_file_name = re.search(r"\.so\.(\d+\.[\d.]+)$", self.driver.libcuda_path or "")
        library = named or (in_file_name[1] if in_file_name else "not known")
        return f"the kernel runs NVIDIA's module {module or 'not known'}, the driver's libraries are version {library}"

    @property
    def no_nvml(self) -> bool:
        """True if NVML's library cannot be opened, but the driver's library can."""
        alone = self.nvml.error == NO_NVML and self.driver.libcuda_path is not None
        return self._reached and not self.two_versions and alone

    @property
    def older_tensorflow(self) -> str:
        """The version of a TensorFlow that lists GPUs without NVML (measured: 2.18-2.20), or ""."""
        tensorflow = self.facts.tensorflow
        versions = () if isinstance(tensorflow, Unknown) else tensorflow.distributions
        older = re.match(r"2\.(\d+)\.", versions[0].version) if versions else None
        return versions[0].version if older and int(older[1]) < 21 else ""

    @property
    def nvml_fails(self) -> str:
        """NVML's error in all other cases, or ""."""
        named = self.two_versions or self.nvml.error == NO_NVML or not self._reached
        return "" if named else self.nvml.error or ""

    @property
    def left_out(self) -> bool:
        """True if NVML's error is about GPUs that the mask leaves out."""
        return bool(self.nvml_fails and self.nvml.undescribed) and not lost_gpus(self.facts)

    @property
    def shut_files(self) -> tuple[str, ...]:
        """The device files that a GPU needs and that this process may not open."""
        nodes, nvml = self.nodes, self.nvml
        # NVML opens them itself, all but nvidia-uvm: if it answers for every GPU, they may be opened.
        opened = nvml.devices and nvml.error is None and len(nvml.devices) >= len(nodes.pci_gpus)
        asked = [node for node in nodes.nodes if not opened or "uvm" in node.path]
        closed = [node.path for node in asked if not (node.readable and node.writable)]
        gpus = [node.path for node in nodes.nodes if is_gpu_file(node.path)]
        # A cluster may open to a job its own GPUs alone; that is not a fault.
        every_gpu = gpus if gpus and set(gpus) <= set(closed) else []
        shut = [path for path in closed if path in _CONTROL_FILES] + every_gpu
        return tuple(shut) if self._reached else ()

    @property
    def held(self) -> dict[str, str]:
        """GPUs on the PCI bus that another maker's driver holds, each with that driver, if NVML has other GPUs."""
        if not self._reached or not self.nvml.devices:
            return {}
        return {
            pci: driver
            for pci, driver in self.nodes.bound.items()
            if pci in self.nodes.pci_gpus and not driver.startswith("nvidia")
        }

    @property
    def too_old(self) -> tuple[str, str] | None:
        """The newest CUDA of the driver, and TensorFlow's CUDA, if the driver is too old for it."""
        build = None if isinstance(self.facts.tensorflow, Unknown) else self.facts.tensorflow.build
        # The library's figure comes first: a compatibility package supports more than the kernel module that NVML asks.
        supported, built = self.driver.cuda_version or self.nvml.cuda_version, build.cuda_version if build else None
        # Within a major version any driver will do (CUDA minor version compatibility).
        newest, needed = _major(supported), _major(built)
        if supported is None or built is None or newest is None or needed is None or not self._reached:
            return None
        return (supported, built) if newest < needed else None


def _major(version: str | None) -> int | None:
    major = (version or "").partition(".")[0]
    return int(major) if major.isdecimal() else None
