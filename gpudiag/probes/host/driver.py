"""Kernel module, driver library and NVML are there, agree with each other, and are new enough for TensorFlow.

What it does
    Reads the version of NVIDIA's kernel module, opens the CUDA driver library without initialising CUDA, asks NVML,
    and looks at the device files and the PCI bus.
Why it matters
    TensorFlow reports most of these faults as an empty list of GPUs. Without NVML, TensorFlow 2.21 says nothing at all.
What a failure means
    `no_module`: a GPU is in the machine, but NVIDIA's kernel module is not loaded.
    `not_given`: the host of this container has a GPU, but the container was given none.
    `no_libcuda`, `no_nvml`: a library of the driver cannot be opened here.
    `gpus_not_told`: NVML cannot be opened; TensorFlow before 2.21 does without it, gpudiag does not.
    `libcuda_failed`: the driver library opens, but does not answer; it is a stub, or damaged.
    `version_mismatch`: the driver was upgraded, and the kernel still runs the old module.
    `nvml_failed`: NVML, or a GPU it counts, cannot be used; the message has NVML's own words.
    `not_counted`: a GPU is on the PCI bus, no other driver holds it, and NVML does not count it.
    `left_out`: a GPU cannot be used, and `CUDA_VISIBLE_DEVICES` leaves it out.
    `held`: another kernel driver holds a GPU, such as vfio-pci for a virtual machine.
    `no_access`: this user may not open the device files.
    `old_driver`: the driver is older than the CUDA that TensorFlow was built with.
    `not_gathered`: a part of the driver did not answer, so it cannot be judged.
    A machine without NVIDIA hardware has no fault: nothing is found.
What to do
    Each finding names its cure. Run `nvidia-smi` first: what it says applies to TensorFlow too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudiag.hostfacts import (
    DeviceNodeFacts,
    DriverFacts,
    Facts,
    NvmlFacts,
    TensorflowFacts,
    Unknown,
)
from gpudiag.missing import lost_gpus, uncounted_gpus
from gpudiag.model import Finding, Limits, Severity
from gpudiag.probe import Kind, Needs, Probe

PROBE = Probe(needs=Needs(tensorflow=False), families=("driver", "nvml", "device_nodes"), quick=True)

NOT_GATHERED = Kind(
    "not_gathered",
    Severity.FAIL,
    "no answer about {family}: {reason}",
    "Run nvidia-smi: if it hangs too, the driver is stuck. Look for 'Xid' in dmesg, and reboot the machine.",
)
NO_MODULE = Kind(
    "no_module",
    Severity.FAIL,
    "NVIDIA GPU on the PCI bus ({pci}), but NVIDIA's kernel module is not loaded",
    "Install the NVIDIA driver and reboot. Where it is installed: sudo modprobe nvidia, and look at dmesg "
    "(nouveau in use, or Secure Boot without an enrolled key).",
)
NOT_GIVEN = Kind(
    "not_given",
    Severity.WARNING,
    "the host has an NVIDIA GPU, but this container ({runtime}) was given none: no /dev/nvidia*",
    "Docker: docker run --gpus all. Podman: --device nvidia.com/gpu=all. Kubernetes: resources.limits "
    "nvidia.com/gpu: 1. Do not install a driver in the image.",
)
NO_LIBCUDA = Kind(
    "no_libcuda",
    Severity.FAIL,
    "the CUDA driver library cannot be opened: {error}",
    "{cure}",
)
LIBCUDA_FAILED = Kind(
    "libcuda_failed",
    Severity.FAIL,
    "{path} opens, but {error}",
    "Error 34 is the stub of the CUDA toolkit: take its folder out of LD_LIBRARY_PATH. Otherwise reinstall the driver.",
)
NO_NVML = Kind(
    "no_nvml",
    Severity.FAIL,
    "the driver library is there, but NVML (libnvidia-ml.so.1) is not: TensorFlow 2.21 then sees no GPU, silently",
    "{cure}",
)
GPUS_NOT_TOLD = Kind(
    "gpus_not_told",
    Severity.WARNING,
    "NVML (libnvidia-ml.so.1) cannot be opened: TensorFlow {tensorflow} does without it, gpudiag cannot tell the GPUs",
    "In a container: -e NVIDIA_DRIVER_CAPABILITIES=compute,utility. Otherwise install the driver's NVML package "
    "(libnvidia-compute on Ubuntu); TensorFlow 2.21 needs it.",
)
VERSION_MISMATCH = Kind(
    "version_mismatch",
    Severity.FAIL,
    "the kernel runs NVIDIA's module {module}, the driver's libraries are of another version ({library})",
    "Reboot, or unload and load the nvidia modules. In a container: remove driver packages from the image.",
)
NVML_FAILED = Kind(
    "nvml_failed",
    Severity.FAIL,
    "NVML answers: {error}",
    "Run nvidia-smi and look for 'NVRM' and 'Xid' in dmesg. A lost GPU needs a reset or a reboot; "
    "'Insufficient Permissions' needs access to /dev/nvidia*.",
)
NOT_COUNTED = Kind(
    "not_counted",
    Severity.WARNING,
    "on the PCI bus and not among the GPUs of NVML: {pci}",
    "Look for 'NVRM' and 'Xid' in dmesg: the driver could not start the GPU, or is too new or too old for it. To do "
    "without it, name the others in CUDA_VISIBLE_DEVICES.",
)
LEFT_OUT = Kind(
    "left_out",
    Severity.NOTE,
    "CUDA_VISIBLE_DEVICES leaves out a GPU that cannot be used: NVML answers: {error}",
    "Nothing, if the other GPUs are enough. A lost GPU needs a reset or a reboot.",
)
HELD = Kind(
    "held",
    Severity.NOTE,
    "{pci} is held by {driver}, so NVML does not count it",
    "Nothing, if that is meant, as for a virtual machine. Otherwise give it back to the driver nvidia.",
)
NO_ACCESS = Kind(
    "no_access",
    Severity.FAIL,
    "this user may not read and write {nodes}",
    "Join the group that owns the device files (ls -l /dev/nvidia*) and log in again; in a container: --group-add.",
)
OLD_DRIVER = Kind(
    "old_driver",
    Severity.FAIL,
    "the driver supports CUDA {supported}, TensorFlow was built with CUDA {built}",
    "Install a driver for CUDA {built} or newer; on data-centre GPUs the cuda-compat package is enough.",
)

_MISSING_LIBRARY = "NVML Shared Library Not Found"
_NVML_OTHERWISE = (
    "In a container: -e NVIDIA_DRIVER_CAPABILITIES=compute,utility. Otherwise install the driver's NVML package "
    "(libnvidia-compute on Ubuntu)."
)
_GPU_NODE = re.compile(r"/dev/nvidia\d+")
_CONTROL_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm")


def judge(facts: Facts, limits: Limits) -> Iterator[Finding]:
    driver, nvml, nodes = facts.driver, facts.nvml, facts.device_nodes
    parts = {"the driver": driver, "NVML": nvml, "device files and the PCI bus": nodes}
    for name, family in parts.items():
        if isinstance(family, Unknown):
            yield NOT_GATHERED.found(family=name, reason=family.reason)
    if isinstance(driver, Unknown) or isinstance(nvml, Unknown) or isinstance(nodes, Unknown):
        return  # what follows compares them all
    if not _nvidia_is_here(driver, nodes):
        return
    container = None if isinstance(facts.container, Unknown) else facts.container.name
    if container and not nodes.nodes and not nvml.devices:
        yield NOT_GIVEN.found(runtime=container)
    elif driver.kernel_module is None and not nodes.nodes and nvml.error:
        yield NO_MODULE.found(pci=" ".join(nodes.pci_gpus))
    else:
        yield from _judge_libraries(facts, driver, nvml)
        yield from _judge_access(nodes, nvml)
        yield from _judge_bus(facts, nodes)
        yield from _judge_age(facts, driver, nvml)


def figure(facts: Facts) -> str:
    driver, nvml = facts.driver, facts.nvml
    if isinstance(driver, Unknown) or isinstance(nvml, Unknown):
        return "not known"
    version = nvml.driver_version or driver.kernel_module
    if version is None:
        return "no NVIDIA driver" if driver.libcuda_path is None else "CUDA driver library without a driver"
    cuda = driver.cuda_version or nvml.cuda_version
    return f"driver {version}, {f'CUDA {cuda}' if cuda else 'no CUDA'}"


def _nvidia_is_here(driver: DriverFacts, nodes: DeviceNodeFacts) -> bool:
    """Return True where there is NVIDIA hardware, or a part of its driver in the kernel.

    Libraries alone are no sign of it: images bring them to machines without a GPU. Under WSL every kind of GPU shows
    as ``/dev/dxg``, so there NVIDIA's driver library decides.
    """
    nvidia_nodes = any(node.path.startswith("/dev/nvidia") for node in nodes.nodes)
    wsl = bool(nodes.nodes) and driver.libcuda_path is not None
    return bool(nodes.pci_gpus) or driver.kernel_module is not None or nvidia_nodes or wsl


def _without_nvml(tensorflow: TensorflowFacts | Unknown) -> str:
    """Return the version of a TensorFlow that lists GPUs without NVML (measured: 2.18-2.20), or ""."""
    versions = () if isinstance(tensorflow, Unknown) else tensorflow.distributions
    older = re.match(r"2\.(\d+)\.", versions[0].version) if versions else None
    return versions[0].version if older and int(older[1]) < 21 else ""


def _cure(facts: Facts, soname: str, otherwise: str) -> str:
    """Return what brings a library of the driver; where a good one is hidden by a damaged one, that is in the way."""
    one = facts.library(soname)
    if one is None or one.instead is None:
        return otherwise
    return f"Take {' and '.join(one.damaged_folders)} out of LD_LIBRARY_PATH: {one.instead} comes after it and opens."


def _judge_libraries(facts: Facts, driver: DriverFacts, nvml: NvmlFacts) -> Iterator[Finding]:
    module = driver.kernel_module
    if driver.libcuda_path is None:
        install = (
            f"Install the driver's libraries, of the version of the kernel module ({module or 'not known'}). In a "
            "container: leave that to the NVIDIA Container Toolkit (docker run --gpus all) instead of mounting devices "
            "by hand."
        )
        yield NO_LIBCUDA.found(error=driver.libcuda_error, cure=_cure(facts, "libcuda.so.1", install))
    elif driver.libcuda_error:
        yield LIBCUDA_FAILED.found(path=driver.libcuda_path, error=driver.libcuda_error)
    in_file_name = re.search(r"\.so\.(\d+\.[\d.]+)$", driver.libcuda_path or "")
    library = nvml.driver_version or (in_file_name[1] if in_file_name else "not known")
    differ = None not in (module, nvml.driver_version) and module != nvml.driver_version
    # NVML 18 is "Driver/library version mismatch" for nvidia-smi, "NVML/RM version mismatch" for pynvml.
    if differ or "version mismatch" in (nvml.error or ""):
        yield VERSION_MISMATCH.found(module=module or "not known", library=library)
    elif nvml.error == _MISSING_LIBRARY:
        if driver.libcuda_path is not None:  # otherwise one cause, told once
            older = _without_nvml(facts.tensorflow)
            cure = _cure(facts, "libnvidia-ml.so.1", _NVML_OTHERWISE)
            yield GPUS_NOT_TOLD.found(tensorflow=older) if older else NO_NVML.found(cure=cure)
    elif nvml.undescribed and not lost_gpus(facts):
        yield LEFT_OUT.found(error=nvml.error)
    elif nvml.error:
        yield NVML_FAILED.found(error=nvml.error)


def _judge_bus(facts: Facts, nodes: DeviceNodeFacts) -> Iterator[Finding]:
    if not facts.nvml_devices:
        return  # then NVML itself is the matter, or every GPU is held
    if uncounted := uncounted_gpus(facts):
        yield NOT_COUNTED.found(pci=" ".join(uncounted))
    for pci, driver in nodes.bound.items():
        if pci in nodes.pci_gpus and not driver.startswith("nvidia"):
            yield HELD.found(pci=pci, driver=driver)


def _judge_access(nodes: DeviceNodeFacts, nvml: NvmlFacts) -> Iterator[Finding]:
    # NVML opens them itself, all but nvidia-uvm: where it answers for every GPU, they may be opened.
    opened = nvml.devices and nvml.error is None and len(nvml.devices) >= len(nodes.pci_gpus)
    asked = [node for node in nodes.nodes if not opened or "uvm" in node.path]
    closed = [node.path for node in asked if not (node.readable and node.writable)]
    gpus = [node.path for node in nodes.nodes if _GPU_NODE.fullmatch(node.path)]
    # A cluster may open to a job its own GPUs alone; that is no fault.
    every_gpu = gpus if gpus and set(gpus) <= set(closed) else []
    shut = [path for path in closed if path in _CONTROL_NODES] + every_gpu
    if shut:
        yield NO_ACCESS.found(nodes=" ".join(shut))


def _judge_age(facts: Facts, driver: DriverFacts, nvml: NvmlFacts) -> Iterator[Finding]:
    build = None if isinstance(facts.tensorflow, Unknown) else facts.tensorflow.build
    # The library's figure comes first: a compatibility package supports more than the kernel module that NVML asks.
    supported = driver.cuda_version or nvml.cuda_version
    # Within a major version any driver will do (CUDA minor version compatibility).
    built = build.cuda_version if build else None
    newest, needed = _major(supported), _major(built)
    if newest is not None and needed is not None and newest < needed:
        yield OLD_DRIVER.found(supported=supported, built=built)


def _major(version: str | None) -> int | None:
    major = (version or "").partition(".")[0]
    return int(major) if major.isdecimal() else None
