"""Ordinary machines, of which an example changes a part."""

from __future__ import annotations

from gpudiag.model.facts import (
    CallFacts,
    ContainerFacts,
    CudaFacts,
    DeviceNode,
    DeviceNodeFacts,
    Distribution,
    DriverFacts,
    EnvironmentFacts,
    FactFamily,
    Facts,
    LibraryFacts,
    NvmlDevice,
    NvmlFacts,
    SystemFacts,
    TensorflowBuild,
    TensorflowFacts,
    TriedFacts,
)

_SITE = "/home/someone/venv/lib/python3.11/site-packages"
_FRAMEWORK = f"{_SITE}/tensorflow/libtensorflow_framework.so.2"


def example(**families: FactFamily) -> Facts:
    """Return the facts of an ordinary machine without a GPU, ``families`` replaced."""
    ordinary: dict[str, FactFamily] = {
        "system": SystemFacts(
            os="Debian GNU/Linux 12 (bookworm)",
            kernel="6.1.0",
            machine="x86_64",
            libc="glibc 2.36",
            hostname="example",
            user="someone",
            home="/home/someone",
            python="3.11.7",
            executable="/home/someone/venv/bin/python",
            prefix="/home/someone/venv",
            cpus=2,
            memory_bytes=16 << 30,
            wsl=False,
        ),
        "tensorflow": TensorflowFacts(
            module_path="/home/someone/venv/lib/python3.11/site-packages/tensorflow/__init__.py",
            distributions=(Distribution("tensorflow", "2.21.0", "/home/someone/venv/lib/python3.11/site-packages"),),
            build=TensorflowBuild(True, "12.5.1", "9", ("sm_60", "sm_70", "sm_80", "sm_89", "compute_90")),
            companions=(),
        ),
        "driver": DriverFacts(None, None, "libcuda.so.1: cannot open shared object file", None),
        "nvml": NvmlFacts("NVML Shared Library Not Found", None, None, ()),
        "device_nodes": DeviceNodeFacts((), ()),
        "environment": EnvironmentFacts({}),
        "container": ContainerFacts(None, (), False, None),
        "libraries": LibraryFacts(_FRAMEWORK, (), (), (), (), ()),
        "cuda": CudaFacts(),
        "tried": TriedFacts(),
        "calls": CallFacts(),
    }
    return Facts(**{**ordinary, **families})  # type: ignore[arg-type]  # msgspec checks nothing here, mypy cannot


def example_gpu(index: int = 0) -> NvmlDevice:
    """Return an ordinary GPU."""
    return NvmlDevice(
        index=index,
        name="NVIDIA A100-SXM4-40GB",
        uuid=f"GPU-{index:08x}-0000-4000-8000-000000000000",
        pci_bus_id=f"0000:{index + 1:02x}:00.0",
        memory_total_bytes=40 << 30,
        memory_used_bytes=0,
        compute_capability="8.0",
        compute_mode="default",
        mig_mode="disabled",
        mig_uuids=(),
        processes=(),
    )


def example_with_gpus(count: int = 1, **families: FactFamily) -> Facts:
    """Return the facts of an ordinary machine with ``count`` GPUs, ``families`` replaced."""
    devices = tuple(example_gpu(index) for index in range(count))
    paths = ("/dev/nvidiactl", "/dev/nvidia-uvm", *(f"/dev/nvidia{gpu.index}" for gpu in devices))
    ordinary: dict[str, FactFamily] = {
        "driver": DriverFacts("535.104.05", "/usr/lib/x86_64-linux-gnu/libcuda.so.535.104.05", None, "12.2"),
        "nvml": NvmlFacts(None, "535.104.05", "12.2", devices),
        "device_nodes": DeviceNodeFacts(
            tuple(DeviceNode(path, "crw-rw-rw-", True, True) for path in paths),
            tuple(gpu.pci_bus_id for gpu in devices),
        ),
    }
    return example(**{**ordinary, **families})
