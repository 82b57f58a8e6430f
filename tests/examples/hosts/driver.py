"""Examples of ``host.driver``."""

from __future__ import annotations

import re

import msgspec

from examples.facts import example, example_gpu, example_with_gpus
from examples.hosts import Case
from gpudiag.causes.shared.signs import NO_NVML
from gpudiag.model.facts import (
    CallFacts,
    ContainerFacts,
    DeviceNode,
    DeviceNodeFacts,
    Distribution,
    DriverFacts,
    EnvironmentFacts,
    FactFamily,
    Facts,
    NvmlFacts,
    TensorflowFacts,
    TimedCall,
    Unknown,
)

_MODULE = "535.104.05"


_LIBCUDA = "/usr/lib/x86_64-linux-gnu/libcuda.so.535.104.05"


_NO_LIBCUDA = "libcuda.so.1: cannot open shared object file: No such file or directory"


_PCI_ALONE = DeviceNodeFacts((), ("0000:3b:00.0",))


_WSL = DeviceNodeFacts((DeviceNode("/dev/dxg", "crw-rw-rw-", True, True),), ())


_DOCKER = ContainerFacts("docker", ("/.dockerenv",), False, None)


def _tensorflow(version: str) -> TensorflowFacts:
    return TensorflowFacts("tensorflow/__init__.py", (Distribution("tensorflow", version, "/venv"),), None, ())


def _nvml(error: str) -> NvmlFacts:
    return NvmlFacts(error, None, None, ())


def _nodes(shut: str) -> DeviceNodeFacts:
    ordinary = example_with_gpus(2).device_nodes
    assert isinstance(ordinary, DeviceNodeFacts)
    closed = tuple(
        DeviceNode(node.path, "crw-rw----", False, False) if re.fullmatch(shut, node.path) else node
        for node in ordinary.nodes
    )
    return msgspec.structs.replace(ordinary, nodes=closed)


def _one_counted(driver: str = "nvidia", **families: FactFamily) -> Facts:
    """Return the facts of a machine with two GPUs, of which NVML counts the first; ``driver`` holds the other."""
    nodes = example_with_gpus(2).device_nodes
    assert isinstance(nodes, DeviceNodeFacts)
    held = msgspec.structs.replace(nodes, bound=dict(zip(nodes.pci_gpus, ("nvidia", driver), strict=True)))
    return example_with_gpus(1, **{"device_nodes": held, **families})


CASES = (
    Case("no NVIDIA hardware", expect=(), facts=example()),
    Case("two GPUs", expect=(), facts=example_with_gpus(2)),
    Case("libraries of an image, no GPU", expect=(), facts=example(driver=DriverFacts(None, _LIBCUDA, None, "12.2"))),
    Case("WSL with a GPU of another maker", expect=(), facts=example(device_nodes=_WSL)),
    Case(
        "WSL without NVML",
        expect=("no_nvml",),
        facts=example(device_nodes=_WSL, driver=DriverFacts(None, "/usr/lib/wsl/lib/libcuda.so.1.1", None, "12.8")),
    ),
    Case(
        "a library that shares GPUs out",
        expect=("calls_interposed",),
        facts=example_with_gpus(
            driver=DriverFacts(_MODULE, _LIBCUDA, None, "12.2", interposed=("/usr/local/vgpu/libvgpu.so",))
        ),
    ),
    Case("GPU without a driver", expect=("no_module",), facts=example(device_nodes=_PCI_ALONE)),
    Case(
        "container without GPUs on a GPU host",
        expect=("not_given",),
        facts=example(device_nodes=_PCI_ALONE, driver=DriverFacts(_MODULE, None, _NO_LIBCUDA, None), container=_DOCKER),
    ),
    Case(
        "devices mounted, libraries not",
        expect=("no_libcuda",),
        facts=example_with_gpus(
            driver=DriverFacts(_MODULE, None, _NO_LIBCUDA, None), nvml=_nvml(NO_NVML), container=_DOCKER
        ),
    ),
    Case(
        "stub of the CUDA toolkit",
        expect=("libcuda_failed",),
        facts=example_with_gpus(
            driver=DriverFacts(_MODULE, "/usr/local/cuda/stubs/libcuda.so", "cuDriverGetVersion returned 34", None)
        ),
    ),
    Case("capabilities without utility", expect=("no_nvml",), facts=example_with_gpus(nvml=_nvml(NO_NVML))),
    Case(
        "the same under an older TensorFlow",
        expect=("gpus_not_told",),
        facts=example_with_gpus(nvml=_nvml(NO_NVML), tensorflow=_tensorflow("2.20.0")),
    ),
    Case(
        "upgraded, not rebooted",
        expect=("version_mismatch",),
        facts=example_with_gpus(
            driver=DriverFacts(_MODULE, "/usr/lib/x86_64-linux-gnu/libcuda.so.550.54.14", None, "12.4"),
            nvml=_nvml("RM has detected an NVML/RM version mismatch."),
        ),
    ),
    Case(
        "module and NVML differ",
        expect=("version_mismatch",),
        facts=example_with_gpus(driver=DriverFacts("470.82.01", _LIBCUDA, None, "12.2")),
    ),
    Case(
        "compatibility package: a newer library on an older module",
        expect=(),
        facts=example_with_gpus(
            driver=DriverFacts(_MODULE, "/usr/local/cuda/compat/libcuda.so.555.42.06", None, "12.5")
        ),
    ),
    Case("unknown error", expect=("nvml_failed",), facts=example_with_gpus(nvml=_nvml("Unknown Error"))),
    Case(
        "one lost GPU",
        expect=("nvml_failed",),
        facts=example_with_gpus(2, nvml=NvmlFacts("GPU 1: GPU is lost", _MODULE, "12.2", (example_gpu(0),))),
    ),
    Case(
        "one lost GPU, which is not in scope",
        expect=("left_out",),
        facts=example_with_gpus(
            2,
            nvml=NvmlFacts("GPU 1: GPU is lost", _MODULE, "12.2", (example_gpu(0),)),
            environment=EnvironmentFacts({"CUDA_VISIBLE_DEVICES": "0"}),
        ),
    ),
    Case("one that NVML does not count", expect=("not_counted",), facts=_one_counted()),
    Case(
        "one that NVML does not count, and nobody wants",
        expect=(),
        facts=_one_counted(environment=EnvironmentFacts({"CUDA_VISIBLE_DEVICES": "0"})),
    ),
    Case("one of the host's GPUs in a container", expect=(), facts=_one_counted(container=_DOCKER)),
    Case("one for a virtual machine", expect=("held",), facts=_one_counted("vfio-pci")),
    Case(
        "no access to any GPU",
        expect=("nvml_failed", "no_access"),
        facts=example_with_gpus(
            2,
            device_nodes=_nodes(r".*\d"),
            nvml=NvmlFacts("Insufficient Permissions", None, None, ()),
        ),
    ),
    Case("closed to others, and NVML opens them", expect=(), facts=example_with_gpus(2, device_nodes=_nodes(r".*\d"))),
    Case("no access to uvm", expect=("no_access",), facts=example_with_gpus(2, device_nodes=_nodes(".*uvm"))),
    Case("access to one of two GPUs", expect=(), facts=example_with_gpus(2, device_nodes=_nodes(".*1"))),
    Case(
        "CUDA 11 driver",
        expect=("old_driver",),
        facts=example_with_gpus(driver=DriverFacts(_MODULE, _LIBCUDA, None, "11.4")),
    ),
    Case(
        "cuInit is slow", expect=("call_slow",), facts=example_with_gpus(calls=CallFacts((TimedCall("cuInit", 25.0),)))
    ),
    Case("cuInit takes two seconds", expect=(), facts=example_with_gpus(calls=CallFacts((TimedCall("cuInit", 2.0),)))),
    Case(
        "cuInit hangs", expect=("call_hangs",), facts=example_with_gpus(calls=CallFacts((TimedCall("cuInit", None),)))
    ),
    Case("NVML hangs", expect=("not_gathered",), facts=example_with_gpus(nvml=Unknown("no answer within 10 s"))),
    Case(
        "everything hangs",
        expect=("not_gathered",) * 3,
        facts=example(**dict.fromkeys(("driver", "nvml", "device_nodes"), Unknown("no answer within 10 s"))),
    ),
)
