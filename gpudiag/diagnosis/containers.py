"""Containers and orchestration: GPUs of the host that do not reach this process, or reach it by halves."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from gpudiag.diagnosis.rule import Evidence, Match, Rule, RuleCase
from gpudiag.hostfacts import (
    ContainerFacts,
    DeviceNode,
    DeviceNodeFacts,
    DriverFacts,
    EnvironmentFacts,
    Facts,
    GpuProcess,
    NvmlFacts,
    Unknown,
    example,
    example_gpu,
    example_with_gpus,
)
from gpudiag.model import Judged, Row, Stage, Sure
from gpudiag.probes.discovery import trace
from gpudiag.scope import gpus_in_scope, other_use

VISIBLE = "NVIDIA_VISIBLE_DEVICES"
CAPABILITIES = "NVIDIA_DRIVER_CAPABILITIES"

_GPU_NODE = re.compile(r"/dev/(nvidia\d+|dxg)")
_CONTROL = "/dev/nvidiactl"
_UNIFIED_MEMORY = "/dev/nvidia-uvm"
_NONE = ("", "void", "none")
"""Values of NVIDIA_VISIBLE_DEVICES that give no GPU."""
_CUINIT_FAILED = "Failed call to cuInit: "

_DOCKER = "docker run --gpus all IMAGE   # compose: deploy.resources.reservations.devices, capabilities: [gpu]"
_START = {
    "podman": "podman run --device nvidia.com/gpu=all IMAGE",
    "apptainer": "apptainer exec --nv IMAGE COMMAND",
    "singularity": "singularity exec --nv IMAGE COMMAND",
    "containerd": "nerdctl run --gpus all IMAGE",
    "lxc": "lxc config device add NAME gpu gpu; lxc config set NAME nvidia.runtime true; lxc restart NAME",
    "kubernetes": "resources: {limits: {nvidia.com/gpu: 1}}   # in the container's part of the pod",
}
"""How each runtime is told to give GPUs."""

_TOOLKIT = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html"
_PODS = "https://kubernetes.io/docs/tasks/manage-gpus/scheduling-gpus/"


def _container(facts: Facts) -> ContainerFacts | None:
    """Return the facts of the container that this process is in, or None where it is in none."""
    found = facts.container
    return None if isinstance(found, Unknown) or found.name is None else found


def _marks(container: ContainerFacts) -> str:
    return f"in a container: {', '.join([*container.evidence, *['Kubernetes'] * container.kubernetes])}"


def _start(container: ContainerFacts, **variables: str) -> str:
    """Return how a container is started with GPUs under this runtime, and with such variables."""
    told = "".join(f"-e {name}={value} " for name, value in variables.items())
    how = _START["kubernetes"] if container.kubernetes else _START.get(container.name or "", _DOCKER)
    return how.replace("--gpus all ", f"--gpus all {told}")


def _nodes(facts: Facts) -> tuple[str, ...]:
    return () if isinstance(facts.device_nodes, Unknown) else tuple(node.path for node in facts.device_nodes.nodes)


def _given_none(evidence: Evidence) -> bool:
    """Return True where it is known that no device of a GPU is here, and TensorFlow lists none by another name."""
    facts = evidence.facts
    known = not isinstance(facts.device_nodes, Unknown)
    listed = evidence.trace.listed if evidence.trace else 0
    return known and not listed and not facts.nvml_devices and not any(map(_GPU_NODE.fullmatch, _nodes(facts)))


def _gpu_of_the_host(facts: Facts) -> str:
    """Say what shows that the host has a GPU: its PCI bus and its kernel modules are seen from containers, too."""
    if not isinstance(facts.device_nodes, Unknown) and facts.device_nodes.pci_gpus:
        return f"the host has {len(facts.device_nodes.pci_gpus)} GPU(s): PCI {' '.join(facts.device_nodes.pci_gpus)}"
    if not isinstance(facts.driver, Unknown) and facts.driver.kernel_module:
        return f"the host runs NVIDIA's kernel module {facts.driver.kernel_module}"
    return ""


def _library(facts: Facts) -> str | None:
    return None if isinstance(facts.driver, Unknown) else facts.driver.libcuda_path


def _stage(facts: Facts) -> Stage:
    """Return where the lack of devices shows: the toolkit that gives none brings no library either, an image may."""
    return Stage.DRIVER_LIBRARY if _library(facts) is None else Stage.DRIVER


def _no_device_seen(facts: Facts) -> str:
    library = _library(facts)
    return f"no /dev/nvidia0 or the like here; {'no libcuda.so.1' if library is None else f'{library} is here'}"


def _asked(facts: Facts) -> tuple[str, ...]:
    value = facts.variables.get(VISIBLE)
    return () if value is None else (f"{VISIBLE}={value!r}",)


def _container_without_gpu(evidence: Evidence) -> Iterator[Match]:
    facts = evidence.facts
    container = _container(facts)
    if container is None or container.kubernetes or not _given_none(evidence):
        return
    host = _gpu_of_the_host(facts)
    wanted = facts.variables.get(VISIBLE)
    if not host and wanted is None:
        return  # no GPU can be seen, and nobody spoke of one
    yield Match(
        evidence=tuple(filter(None, [_marks(container), _no_device_seen(facts), *_asked(facts), host])),
        sure=Sure.PROVED if host else Sure.LIKELY if wanted in _NONE else Sure.POSSIBLE,
        figures={
            "start": _start(container, **({VISIBLE: "all"} if wanted in _NONE else {})),
            "how": f": {VISIBLE}={wanted!r} forbids it" if wanted in _NONE else "",
            "host": "" if host else "; whether its host has one cannot be seen from here",
        },
        stage=_stage(facts),
    )


def _pod_without_gpu(evidence: Evidence) -> Iterator[Match]:
    facts = evidence.facts
    container = _container(facts)
    if container is None or not container.kubernetes or not _given_none(evidence):
        return
    host = _gpu_of_the_host(facts)
    wanted = facts.variables.get(VISIBLE)
    if not host and wanted is None:
        return
    yield Match(
        evidence=tuple(filter(None, [_marks(container), _no_device_seen(facts), *_asked(facts), host])),
        sure=Sure.PROVED if host else Sure.LIKELY if wanted in _NONE else Sure.POSSIBLE,
        stage=_stage(facts),
    )


def _pod_sees_every_gpu(evidence: Evidence) -> Iterator[Match]:
    facts = evidence.facts
    container = _container(facts)
    gpus = gpus_in_scope(facts)
    if container is None or not container.kubernetes or facts.variables.get(VISIBLE) != "all" or not gpus:
        return
    others = [f"GPU {gpu.index} is used by {use}" for gpu in gpus if (use := other_use(gpu, facts))]
    if len(gpus) > 1 or others:
        yield Match(
            evidence=(_marks(container), f"{VISIBLE}='all': the device plugin would have named GPUs", *others),
            sure=Sure.LIKELY,
            figures={"gpus": len(facts.nvml_devices)},
        )


def _devices_without_library(evidence: Evidence) -> Iterator[Match]:
    facts = evidence.facts
    container = _container(facts)
    if container is None or isinstance(facts.driver, Unknown) or facts.driver.libcuda_path is not None:
        return
    here = facts.library("libcuda.so.1")
    if here is not None and here.instead is not None:  # hidden by a damaged one: told by another rule
        return
    devices = [path for path in _nodes(facts) if _GPU_NODE.fullmatch(path)]
    capabilities = facts.variables.get(CAPABILITIES)
    left_out = capabilities and not {"all", "compute"} & set(capabilities.split(","))
    if devices:
        yield Match(
            evidence=(
                _marks(container),
                f"devices: {' '.join(_nodes(facts))}",
                f"libcuda.so.1: {facts.driver.libcuda_error}",
                "NVML: " + ("answers" if facts.nvml_devices else getattr(facts.nvml, "error", None) or "not known"),
                *([f"{CAPABILITIES}={capabilities!r}: without compute, no libcuda"] if left_out else []),
            ),
            figures={
                "start": _start(container, **({CAPABILITIES: "compute,utility"} if left_out else {})),
                "devices": " ".join(devices),
            },
        )


def _library_without_devices(evidence: Evidence) -> Iterator[Match]:
    facts = evidence.facts
    container = _container(facts)
    # Where all of it is lacking, the container was given no GPU, and the library is the image's: told by that rule.
    if container is None or _library(facts) is None or _given_none(evidence) or not _initialisation(evidence):
        return
    lacking = [path for path in (_CONTROL, _UNIFIED_MEMORY) if path not in _nodes(facts)]
    if lacking and "/dev/dxg" not in _nodes(facts):
        yield Match(
            evidence=(
                _marks(container),
                f"{_library(facts)} opens; cuInit: {_initialisation(evidence)}",
                f"devices: {' '.join(_nodes(facts)) or 'none'}",
            ),
            figures={"start": _start(container), "lacking": " and ".join(lacking)},
        )


def _unified_memory_missing(evidence: Evidence) -> Iterator[Match]:
    nodes = _nodes(evidence.facts)
    if _container(evidence.facts) is not None or not _initialisation(evidence):
        return
    if _CONTROL in nodes and _UNIFIED_MEMORY not in nodes:
        yield Match(evidence=(f"devices: {' '.join(nodes)}", f"cuInit: {_initialisation(evidence)}"))


def _initialisation(evidence: Evidence) -> str:
    """Return how cuInit failed; "" where it did not, or was not reached."""
    for line in evidence.trace.lines if evidence.trace else ():
        _, failed, error = line.text.partition(_CUINIT_FAILED)
        if failed:
            return error
    return ""


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
    failed = f"E0000 00:00:1.1 1 cuda_platform.cc:52] failed call to cuInit: INTERNAL: CUDA error: {_CUINIT_FAILED}"
    reading = msgspec.to_builtins(trace.read_log((f"{failed}{error}",) if error else (), listed, None))
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

RULES = (
    Rule(
        id="container_without_gpu",
        stage=Stage.DRIVER_LIBRARY,
        cause="no GPU was passed into this container{how}{host}",
        why="""
        GPUs and the driver's libraries are on the host; the NVIDIA Container Toolkit puts them into a container, and
        only when it is asked to. Without that TensorFlow finds no libcuda.so.1 and says "failed call to cuInit: UNKNOWN
        ERROR (303)", or, where a driver was installed in the image, that there is no CUDA-capable device. Docker:
        --gpus all. Podman: --device nvidia.com/gpu=all. Apptainer: --nv. NVIDIA_VISIBLE_DEVICES=all, which images set,
        asks for nothing by itself, unless nvidia is the default runtime; void or none gives no GPU whatever else is
        asked for. A driver installed in the image does not help, and harms where the host has another version. On a
        host without an NVIDIA GPU there is nothing to mend.
        """,
        fix=(
            "{start}",
            "# on the host nvidia-smi and the NVIDIA Container Toolkit must work; install no driver in the image",
        ),
        url=_TOOLKIT,
        find=_container_without_gpu,
        needs_gpu=False,
        cases=(
            RuleCase("docker run", Evidence(_facts(_IN_DOCKER))),
            RuleCase("a driver in the image", Evidence(_facts(_IN_DOCKER, library=True))),
            RuleCase("told to have none", Evidence(_facts(_IN_DOCKER, pci=False, NVIDIA_VISIBLE_DEVICES="void"))),
            RuleCase("an image for GPUs", Evidence(_facts(_IN_DOCKER, pci=False, NVIDIA_VISIBLE_DEVICES="all"))),
            RuleCase("nobody asked, no GPU", Evidence(_facts(_IN_DOCKER, pci=False)), fires=False),
            RuleCase("TensorFlow lists it", _listing(_facts(_IN_DOCKER, NVIDIA_VISIBLE_DEVICES="all")), fires=False),
            RuleCase("no container", Evidence(_facts(None)), fires=False),
            RuleCase("devices are here", Evidence(_facts(_IN_DOCKER, nodes=_BY_HAND)), fires=False),
            RuleCase("Windows' device is here", Evidence(_facts(_IN_DOCKER, nodes=("dxg",))), fires=False),
            RuleCase("given", Evidence(example_with_gpus(2, container=_IN_DOCKER)), fires=False),
            RuleCase("a pod", Evidence(_facts(_IN_POD)), fires=False),
        ),
    ),
    Rule(
        id="pod_without_gpu",
        stage=Stage.DRIVER_LIBRARY,
        cause="this pod was given no GPU: it asks for none, or its runtime class cannot give one",
        why="""
        Kubernetes gives a container exactly the nvidia.com/gpu that its limits name; without that line NVIDIA's runtime
        passes none in (NVIDIA_VISIBLE_DEVICES is then void, none or unset), also on a node full of GPUs. Where the line
        is there and no device comes, the container runs under another runtime: the runtime class nvidia is missing, or
        nvidia is not the default runtime of the node. TensorFlow says "failed call to cuInit", with 303 or "no
        CUDA-capable device", as it does without any GPU.
        """,
        fix=(
            "resources: {{limits: {{nvidia.com/gpu: 1}}}}   # in the container's part of the pod",
            "runtimeClassName: nvidia   # in the pod's spec, where nvidia is not the node's default runtime",
            "kubectl describe node NODE | grep nvidia.com/gpu   # 0 or nothing: the device plugin does not run there",
        ),
        url=_PODS,
        find=_pod_without_gpu,
        needs_gpu=False,
        cases=(
            RuleCase("no limit", Evidence(_facts(_IN_POD))),
            RuleCase("void", Evidence(_facts(_IN_POD, pci=False, NVIDIA_VISIBLE_DEVICES="void"))),
            RuleCase("none", Evidence(_facts(_IN_POD, library=True, NVIDIA_VISIBLE_DEVICES="none"))),
            RuleCase("no runtime class", Evidence(_facts(_IN_POD, pci=False, NVIDIA_VISIBLE_DEVICES="all"))),
            RuleCase("nobody asked, no GPU", Evidence(_facts(_IN_POD, pci=False)), fires=False),
            RuleCase("no pod", Evidence(_facts(_IN_DOCKER, NVIDIA_VISIBLE_DEVICES="void")), fires=False),
            RuleCase("a device is here", Evidence(_facts(_IN_POD, nodes=("nvidia0",))), fires=False),
            RuleCase("given", _pod(NVIDIA_VISIBLE_DEVICES=example_gpu().uuid), fires=False),
        ),
    ),
    Rule(
        id="pod_sees_every_gpu",
        stage=Stage.CONFIGURATION,
        cause="this pod asked for no GPU, and sees all {gpus} of the node",
        why="""
        Images for GPUs set NVIDIA_VISIBLE_DEVICES=all. Where nvidia is the default runtime of the node, a pod without a
        limit for nvidia.com/gpu keeps that value and gets every GPU, past the scheduler; in a pod that has the limit,
        the device plugin replaces it by the GPUs that were given. TensorFlow then takes the memory of GPUs that belong
        to other pods, and both run out of memory.
        """,
        fix=(
            "resources: {{limits: {{nvidia.com/gpu: 1}}}}   # in a pod that needs GPUs",
            "env: [{{name: NVIDIA_VISIBLE_DEVICES, value: void}}]   # in a pod that needs none",
            "# in the node's config.toml of the toolkit: accept-nvidia-visible-devices-envvar-when-unprivileged=false",
        ),
        url=_PODS,
        find=_pod_sees_every_gpu,
        cases=(
            RuleCase("all", _pod(NVIDIA_VISIBLE_DEVICES="all")),
            RuleCase("one that another uses", _pod(1, used_by=4711, NVIDIA_VISIBLE_DEVICES="all")),
            RuleCase("one that nobody uses", _pod(1, NVIDIA_VISIBLE_DEVICES="all"), fires=False),
            RuleCase("given", _pod(NVIDIA_VISIBLE_DEVICES=example_gpu().uuid), fires=False),
            RuleCase("masked", _pod(NVIDIA_VISIBLE_DEVICES="all", CUDA_VISIBLE_DEVICES="0"), fires=False),
            RuleCase(
                "docker --gpus all",
                Evidence(
                    example_with_gpus(2, container=_IN_DOCKER, environment=EnvironmentFacts({VISIBLE: "all"})),
                ),
                fires=False,
            ),
        ),
    ),
    Rule(
        id="devices_without_library",
        stage=Stage.DRIVER_LIBRARY,
        cause="{devices} is in this container, the driver's library libcuda.so.1 is not",
        why="""
        A GPU in a container needs the host's device files and the host's driver libraries, of the same version as its
        kernel module. Mounting /dev/nvidia0 by hand brings the first alone; so does Apptainer, which shows the host's
        /dev and brings the libraries with --nv, and the NVIDIA Container Toolkit where NVIDIA_DRIVER_CAPABILITIES
        leaves compute out. TensorFlow says "failed call to cuInit: UNKNOWN ERROR (303)".
        """,
        fix=(
            "{start}",
            "# not --device /dev/nvidia0: the toolkit brings devices and libraries of the host's driver together",
        ),
        url=_TOOLKIT,
        find=_devices_without_library,
        cases=(
            RuleCase("--device /dev/nvidia0", Evidence(_facts(_IN_DOCKER, nodes=_BY_HAND))),
            RuleCase("apptainer without --nv", Evidence(_facts(_IN_APPTAINER, nodes=_BY_HAND))),
            RuleCase(
                "utility alone", Evidence(_facts(_IN_DOCKER, nodes=_BY_HAND, NVIDIA_DRIVER_CAPABILITIES="utility"))
            ),
            RuleCase("Windows' device", Evidence(_facts(_IN_DOCKER, pci=False, nodes=("dxg",)))),
            RuleCase("with the library", Evidence(_facts(_IN_DOCKER, nodes=_BY_HAND, library=True)), fires=False),
            RuleCase("no device", Evidence(_facts(_IN_DOCKER)), fires=False),
            RuleCase("no container", Evidence(_facts(None, nodes=_BY_HAND)), fires=False),
        ),
    ),
    Rule(
        id="library_without_devices",
        stage=Stage.DRIVER,
        cause="the driver's libraries are in this container, {lacking} is not",
        why="""
        CUDA needs /dev/nvidiactl, /dev/nvidia-uvm and a /dev/nvidiaN for each GPU. Passed in one by one, the second is
        the one that is forgotten, because nvidia-smi works without it, while cuInit fails with an unknown error.
        """,
        fix=(
            "{start}",
            "# by hand, all of them: --device /dev/nvidiactl --device /dev/nvidia-uvm --device /dev/nvidia0",
            "sudo nvidia-modprobe -u -c=0  # on the host, where it lacks it, too",
        ),
        url=_TOOLKIT,
        find=_library_without_devices,
        cases=(
            RuleCase("no uvm", _uninitialised(_facts(_IN_DOCKER, nodes=_BY_HAND, library=True))),
            RuleCase("no control", _uninitialised(_facts(_IN_DOCKER, nodes=("nvidia-uvm", "nvidia0"), library=True))),
            RuleCase("cuInit works", _listing(_facts(_IN_DOCKER, nodes=_BY_HAND, library=True)), False),
            RuleCase(
                "all of them",
                _uninitialised(_facts(_IN_DOCKER, nodes=(*_BY_HAND, "nvidia-uvm"), library=True)),
                fires=False,
            ),
            RuleCase("no library", _uninitialised(_facts(_IN_DOCKER, nodes=_BY_HAND)), fires=False),
            RuleCase("no container", _uninitialised(_facts(None, nodes=_BY_HAND, library=True)), fires=False),
            RuleCase("no device at all", _uninitialised(_facts(_IN_DOCKER, library=True)), fires=False),
        ),
    ),
    Rule(
        id="uvm_missing",
        stage=Stage.DRIVER,
        cause="/dev/nvidia-uvm is missing: the kernel module nvidia_uvm is not loaded",
        why="""
        CUDA needs a second kernel module, nvidia_uvm, and its device file. On machines without a desktop nothing loads
        it at boot until a program that may (nvidia-modprobe is setuid root) asks for it. nvidia-smi works without it,
        and cuInit fails with an unknown error.
        """,
        fix=("sudo nvidia-modprobe -u -c=0", "sudo systemctl enable --now nvidia-persistenced   # at every boot"),
        url="https://docs.nvidia.com/cuda/cuda-installation-guide-linux/",
        find=_unified_memory_missing,
        cases=(
            RuleCase("not loaded", _uninitialised(_facts(None, nodes=_BY_HAND, library=True))),
            RuleCase("in a container", _uninitialised(_facts(_IN_DOCKER, nodes=_BY_HAND, library=True)), fires=False),
            RuleCase("cuInit works", _listing(_facts(None, nodes=_BY_HAND, library=True)), fires=False),
            RuleCase(
                "loaded", _uninitialised(_facts(None, nodes=(*_BY_HAND, "nvidia-uvm"), library=True)), fires=False
            ),
            RuleCase("no driver", _uninitialised(_facts(None)), fires=False),
        ),
    ),
)
