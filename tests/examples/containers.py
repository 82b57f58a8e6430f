"""Examples of causes: GPUs of the host that do not reach a container."""

from __future__ import annotations

import msgspec

from examples import Example
from examples.facts import example, example_gpu, example_with_gpus
from examples.hosts.libraries import example_absent, example_copy, example_facts
from gpudiag.cause import Evidence
from gpudiag.causes.shared.containers import VISIBLE
from gpudiag.model.facts import (
    ContainerFacts,
    DeviceNode,
    DeviceNodeFacts,
    DriverFacts,
    EnvironmentFacts,
    Facts,
    GpuProcess,
    NvmlFacts,
)
from gpudiag.model.report import Judged, Row
from gpudiag.probes.discovery import trace

_MODULE = "535.104.05"
_LIBCUDA = "/usr/lib/x86_64-linux-gnu/libcuda.so.535.104.05"
_NO_LIBCUDA = "libcuda.so.1: cannot open shared object file: No such file or directory"
_IN_DOCKER = ContainerFacts("docker", ("/.dockerenv",), False, None)
_IN_APPTAINER = ContainerFacts("apptainer", ("APPTAINER_CONTAINER",), False, None)
_IN_POD = ContainerFacts("containerd", ("containerd in /proc/self/mountinfo",), True, None)
_PCI = ("0000:01:00.0",)
_NO_NVML = NvmlFacts("NVML Shared Library Not Found", None, None, ())


def _facts(
    container: ContainerFacts | None,
    *,
    pci: bool = True,
    nodes: tuple[str, ...] = (),
    library: bool = False,
    **variables: str,
) -> Facts:
    """Return the facts of a process in ``container`` that NVML answers nothing."""
    module = _MODULE if pci else None
    devices = tuple(DeviceNode(f"/dev/{name}", "crw-rw-rw-", True, True) for name in nodes)
    return example(
        driver=DriverFacts(module, _LIBCUDA, None, "12.2") if library else DriverFacts(module, None, _NO_LIBCUDA, None),
        nvml=_NO_NVML,
        device_nodes=DeviceNodeFacts(devices, _PCI if pci else ()),
        environment=EnvironmentFacts(variables),
        **({} if container is None else {"container": container}),
    )


def _listing(facts: Facts, listed: int = 1, error: str | None = None) -> Evidence:
    """Return evidence with the trace of a listing of so many GPUs; cuInit failed with ``error`` where one is given."""
    failed = (
        "E0000 00:00:1.1 1 cuda_platform.cc:52] failed call to cuInit: INTERNAL: CUDA error: Failed call to cuInit: "
    )
    reading = trace.read_log((f"{failed}{error}",) if error else (), listed, None)
    return Evidence(facts, rows=(Row("discovery.trace", (), Judged(), 0.0, reading),))


def _uninitialised(facts: Facts) -> Evidence:
    return _listing(facts, 0, "CUDA_ERROR_UNKNOWN: unknown error")


def _pod(gpus: int = 2, used_by: int | None = None, **variables: str) -> Evidence:
    devices = tuple(example_gpu(index) for index in range(gpus))
    if used_by is not None:
        busy = (GpuProcess(used_by, 8 << 30),)
        devices = tuple(msgspec.structs.replace(device, processes=busy) for device in devices)
    nvml = NvmlFacts(None, _MODULE, "12.2", devices)
    return Evidence(example_with_gpus(gpus, nvml=nvml, container=_IN_POD, environment=EnvironmentFacts(variables)))


_BY_HAND = ("nvidia0", "nvidiactl")
_OFF_THE_PATH = msgspec.structs.replace(
    _facts(_IN_DOCKER, nodes=_BY_HAND),
    libraries=example_facts(
        example_absent("libcuda.so.1", example_copy("libcuda.so.1", "/.singularity.d/libs"))
    ).libraries,
)
EXAMPLES: dict[str, tuple[Example, ...]] = {
    "container_without_gpu": (
        Example("docker run", Evidence(_facts(_IN_DOCKER))),
        Example("a driver in the image", Evidence(_facts(_IN_DOCKER, library=True))),
        Example("told to have none", Evidence(_facts(_IN_DOCKER, pci=False, NVIDIA_VISIBLE_DEVICES="void"))),
        Example("an image for GPUs", Evidence(_facts(_IN_DOCKER, pci=False, NVIDIA_VISIBLE_DEVICES="all"))),
        Example("nobody asked, no GPU", Evidence(_facts(_IN_DOCKER, pci=False)), fires=False),
        Example("TensorFlow lists it", _listing(_facts(_IN_DOCKER, NVIDIA_VISIBLE_DEVICES="all")), fires=False),
        Example("no container", Evidence(_facts(None)), fires=False),
        Example("devices are here", Evidence(_facts(_IN_DOCKER, nodes=_BY_HAND)), fires=False),
        Example("Windows' device is here", Evidence(_facts(_IN_DOCKER, nodes=("dxg",))), fires=False),
        Example("given", Evidence(example_with_gpus(2, container=_IN_DOCKER)), fires=False),
        Example("a pod", Evidence(_facts(_IN_POD)), fires=False),
    ),
    "pod_without_gpu": (
        Example("no limit", Evidence(_facts(_IN_POD))),
        Example("void", Evidence(_facts(_IN_POD, pci=False, NVIDIA_VISIBLE_DEVICES="void"))),
        Example("none", Evidence(_facts(_IN_POD, library=True, NVIDIA_VISIBLE_DEVICES="none"))),
        Example("no runtime class", Evidence(_facts(_IN_POD, pci=False, NVIDIA_VISIBLE_DEVICES="all"))),
        Example("nobody asked, no GPU", Evidence(_facts(_IN_POD, pci=False)), fires=False),
        Example("no pod", Evidence(_facts(_IN_DOCKER, NVIDIA_VISIBLE_DEVICES="void")), fires=False),
        Example("a device is here", Evidence(_facts(_IN_POD, nodes=("nvidia0",))), fires=False),
        Example("given a GPU", Evidence(_facts(_IN_POD, NVIDIA_VISIBLE_DEVICES=example_gpu().uuid)), fires=False),
        Example("given", _pod(NVIDIA_VISIBLE_DEVICES=example_gpu().uuid), fires=False),
    ),
    "pod_runtime_without_gpu": (
        Example("given, and not passed in", Evidence(_facts(_IN_POD, NVIDIA_VISIBLE_DEVICES=example_gpu().uuid))),
        Example("all", Evidence(_facts(_IN_POD, NVIDIA_VISIBLE_DEVICES="all")), fires=False),
        Example("no pod", Evidence(_facts(_IN_DOCKER, NVIDIA_VISIBLE_DEVICES=example_gpu().uuid)), fires=False),
        Example(
            "a device is here",
            Evidence(_facts(_IN_POD, nodes=("nvidia0",), NVIDIA_VISIBLE_DEVICES=example_gpu().uuid)),
            fires=False,
        ),
        Example("passed in", _pod(NVIDIA_VISIBLE_DEVICES=example_gpu().uuid), fires=False),
    ),
    "pod_sees_every_gpu": (
        Example("all", _pod(NVIDIA_VISIBLE_DEVICES="all")),
        Example("one that another uses", _pod(1, used_by=4711, NVIDIA_VISIBLE_DEVICES="all")),
        Example("one that nobody uses", _pod(1, NVIDIA_VISIBLE_DEVICES="all"), fires=False),
        Example("given", _pod(NVIDIA_VISIBLE_DEVICES=example_gpu().uuid), fires=False),
        Example("masked", _pod(NVIDIA_VISIBLE_DEVICES="all", CUDA_VISIBLE_DEVICES="0"), fires=False),
        Example(
            "docker --gpus all",
            Evidence(
                example_with_gpus(2, container=_IN_DOCKER, environment=EnvironmentFacts({VISIBLE: "all"})),
            ),
            fires=False,
        ),
    ),
    "devices_without_library": (
        Example("--device /dev/nvidia0", Evidence(_facts(_IN_DOCKER, nodes=_BY_HAND))),
        Example("apptainer without --nv", Evidence(_facts(_IN_APPTAINER, nodes=_BY_HAND))),
        Example("utility alone", Evidence(_facts(_IN_DOCKER, nodes=_BY_HAND, NVIDIA_DRIVER_CAPABILITIES="utility"))),
        Example("off the loader's path", Evidence(_OFF_THE_PATH)),
        Example("Windows' device", Evidence(_facts(_IN_DOCKER, pci=False, nodes=("dxg",)))),
        Example("with the library", Evidence(_facts(_IN_DOCKER, nodes=_BY_HAND, library=True)), fires=False),
        Example("no device", Evidence(_facts(_IN_DOCKER)), fires=False),
        Example("no container", Evidence(_facts(None, nodes=_BY_HAND)), fires=False),
    ),
    "library_without_devices": (
        Example("no uvm", _uninitialised(_facts(_IN_DOCKER, nodes=_BY_HAND, library=True))),
        Example("no control", _uninitialised(_facts(_IN_DOCKER, nodes=("nvidia-uvm", "nvidia0"), library=True))),
        Example("cuInit works", _listing(_facts(_IN_DOCKER, nodes=_BY_HAND, library=True)), False),
        Example(
            "all of them",
            _uninitialised(_facts(_IN_DOCKER, nodes=(*_BY_HAND, "nvidia-uvm"), library=True)),
            fires=False,
        ),
        Example("no library", _uninitialised(_facts(_IN_DOCKER, nodes=_BY_HAND)), fires=False),
        Example("no container", _uninitialised(_facts(None, nodes=_BY_HAND, library=True)), fires=False),
        Example("no device at all", _uninitialised(_facts(_IN_DOCKER, library=True)), fires=False),
    ),
    "uvm_missing": (
        Example("not loaded", _uninitialised(_facts(None, nodes=_BY_HAND, library=True))),
        Example("in a container", _uninitialised(_facts(_IN_DOCKER, nodes=_BY_HAND, library=True)), fires=False),
        Example("cuInit works", _listing(_facts(None, nodes=_BY_HAND, library=True)), fires=False),
        Example("loaded", _uninitialised(_facts(None, nodes=(*_BY_HAND, "nvidia-uvm"), library=True)), fires=False),
        Example("no driver", _uninitialised(_facts(None)), fires=False),
    ),
}
