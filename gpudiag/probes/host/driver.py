"""Kernel module, driver library and NVML are there, agree with each other, and are new enough for TensorFlow.

What it does
    Reads the version of NVIDIA's kernel module, opens the CUDA driver library without initialising CUDA, asks NVML,
    and looks at the device files and the PCI bus.
Why it matters
    TensorFlow reports most of these faults as an empty list of GPUs. Without NVML, TensorFlow 2.21 says nothing at all.
What to do
    Each finding names its fix. Run `nvidia-smi` first: what it says applies to TensorFlow too.
"""

from __future__ import annotations

from gpudiag.model.facts import (
    Facts,
    Unknown,
)
from gpudiag.probe import Needs, Probe

PROBE = Probe(needs=Needs(tensorflow=False), families=("driver", "nvml", "device_nodes"), quick=True)


def figure(facts: Facts) -> str:
    driver, nvml = facts.driver, facts.nvml
    if isinstance(driver, Unknown) or isinstance(nvml, Unknown):
        return "not known"
    version = nvml.driver_version or driver.kernel_module
    if version is None:
        return "no NVIDIA driver" if driver.libcuda_path is None else "CUDA driver library without a driver"
    cuda = driver.cuda_version or nvml.cuda_version
    return f"driver {version}, {f'CUDA {cuda}' if cuda else 'no CUDA'}"


def concerns(facts: Facts) -> bool:
    """Return False on a machine without NVIDIA hardware and without a part of its driver in the kernel.

    Libraries alone do not count: images bring them to machines without a GPU. Under WSL every kind of GPU shows as
    ``/dev/dxg``, so there NVIDIA's driver library decides.
    """
    driver, nodes = facts.driver, facts.device_nodes
    if isinstance(driver, Unknown) or isinstance(facts.nvml, Unknown) or isinstance(nodes, Unknown):
        return True
    files = any(node.path.startswith("/dev/nvidia") for node in nodes.nodes)
    wsl = bool(nodes.nodes) and driver.libcuda_path is not None
    return bool(nodes.pci_gpus) or driver.kernel_module is not None or files or wsl
