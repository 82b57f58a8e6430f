"""Examples of causes: device files that are lacking or shut, and a GPU that the driver refuses."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from examples import Example
from examples.facts import example, example_gpu
from examples.machines import (
    DOCKER,
    MODULE,
    NO_DEVICE,
    PCI,
    example_driver,
    example_evidence,
    example_facts,
    example_nodes,
)
from gpudiag.cause import Evidence
from gpudiag.model.facts import ContainerFacts, EnvironmentFacts, NvmlFacts, PathAttempt, SystemFacts, TriedFacts

_MASK = "CUDA_VISIBLE_DEVICES"
_ALL = ("/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidiactl")
_NO_GPUS = NvmlFacts(None, MODULE, "12.2", ())
_NOT_LOADED = NvmlFacts("Driver Not Loaded", None, None, ())
_UNKNOWN_ERROR = "CUDA_ERROR_UNKNOWN: unknown error"


def _machine(*files: str, cuinit: str = NO_DEVICE, **families: Any) -> Evidence:
    """Return the evidence of a machine with a GPU, a driver and these device files."""
    return example_evidence(example_facts(device_nodes=example_nodes(*files), **families), cuinit=cuinit)


def _no_device_cases(*cases: Example, files: tuple[str, ...] = _ALL, nvml: NvmlFacts | None = None) -> Any:
    """Return the cases of one rule, and those on which it does not fire for lack of one piece of evidence."""
    families: dict[str, Any] = {} if nvml is None else {"nvml": nvml}
    bound = example_nodes(*files, bound={PCI: "vfio-pci"})
    silent = {
        "cuInit works": _machine(*files, cuinit="", **families),
        "in a container": _machine(*files, container=DOCKER, **families),
        "the module is not loaded": _machine(*files, driver=example_driver(None), **families),
        "kept for a virtual machine": example_evidence(
            example_facts(**{**families, "device_nodes": bound}), cuinit=NO_DEVICE
        ),
    }
    return (*cases, *(Example(name, evidence, fires=False) for name, evidence in silent.items()))


def _shut(mode: str, group: str = "video", groups: tuple[str, ...] = ("users",), **families: Any) -> Evidence:
    """Return the evidence of a machine where no device file may be opened."""
    nodes = example_nodes(*_ALL, mode=mode, group=group, groups=groups)
    nodes = replace(nodes, nodes=tuple(replace(node, readable=False, writable=False) for node in nodes.nodes))
    nvml = NvmlFacts("Insufficient Permissions", None, None, ())
    return example_evidence(example_facts(device_nodes=nodes, nvml=nvml, **families), cuinit=NO_DEVICE)


def _listed(evidence: Evidence) -> Evidence:
    """Return ``evidence`` but that TensorFlow lists a GPU all the same."""
    return example_evidence(evidence.facts, listed=1)


_SYSTEM = example().system


assert isinstance(_SYSTEM, SystemFacts)


_ROOT = replace(_SYSTEM, user="root")


def _unusable(inside: ContainerFacts = DOCKER, error: str | None = "EACCES", **node: Any) -> Evidence:
    """Return the evidence of a machine on which opening nvidiactl fails, and the file has these properties."""
    nodes = example_nodes(*_ALL, group="users", groups=("users",))
    changed = tuple(replace(file, **node) if file.path == "/dev/nvidiactl" else file for file in nodes.nodes)
    return example_evidence(
        example_facts(
            device_nodes=replace(nodes, nodes=changed),
            tried=TriedFacts(opened=(PathAttempt("/dev/nvidiactl", error),)),
            container=inside,
            system=_ROOT,
        ),
        cuinit=NO_DEVICE,
    )


def _hidden(*, in_sysfs: bool | None, cuinit: str = "CUDA_ERROR_OPERATING_SYSTEM: OS call failed") -> Evidence:
    """Return the evidence of a machine on which this process does, or does not, see the module in sysfs."""
    nodes = example_nodes(*_ALL, module_in_sysfs=in_sysfs)
    return example_evidence(example_facts(device_nodes=nodes), cuinit=cuinit)


_UNMAPPED: dict[str, Any] = {"mode": "crw-rw----", "owner": "nobody", "group": "nogroup"}
_OF_OTHERS: dict[str, Any] = {"mode": "crw-rw----", "owner": "somebody", "group": "video"}
_ROOTLESS = replace(DOCKER, runtime="podman", user_namespace="0 1000 1; 1 100000 65536")
_WITH_RIGHT = replace(DOCKER, overrides_permissions=True)
_WITHOUT_RIGHT = replace(DOCKER, overrides_permissions=False)
_MIG = replace(example_gpu(), mig_mode="enabled")
_JOB = ContainerFacts(None, (), False, "17")
_ALLOCATED = EnvironmentFacts({"SLURM_JOB_ID": "17", "SLURM_JOB_GPUS": "0"})
_OPEN = _machine(*_ALL, cuinit="")
_IN_GVISOR = ContainerFacts("docker", ("/.dockerenv",), False, None, sandbox="gvisor")
"""As in https://github.com/google/gvisor/issues/9846."""
EXAMPLES: dict[str, tuple[Example, ...]] = {
    "device_files_missing": _no_device_cases(
        Example("none", _machine()),
        Example("the control file alone", _machine("/dev/nvidiactl")),
        Example("all but the control file", _machine(*_ALL[:2], nvml=_NOT_LOADED)),
        Example("all there", _machine(*_ALL), fires=False),
        files=(),
    ),
    "gpu_refused_by_driver": _no_device_cases(
        Example("NVML reports none", _machine(*_ALL, nvml=_NO_GPUS)),
        Example("NVML reports it", _machine(*_ALL), fires=False),
        Example("NVML fails", _machine(*_ALL, nvml=NvmlFacts("Unknown Error", None, None, ())), fires=False),
        Example("not ready", _machine(*_ALL, nvml=_NO_GPUS, cuinit="CUDA_ERROR_SYSTEM_NOT_READY"), fires=False),
        nvml=_NO_GPUS,
    ),
    "driver_does_not_answer": _no_device_cases(
        Example("not loaded, it says", _machine(*_ALL, nvml=_NOT_LOADED)),
        Example("unknown error", _machine(*_ALL, nvml=NvmlFacts("Unknown Error", None, None, ()))),
        Example("NVML reports the GPU", _machine(*_ALL), fires=False),
        Example("NVML reports none", _machine(*_ALL, nvml=_NO_GPUS), fires=False),
        Example(
            "two versions",
            _machine(*_ALL, nvml=NvmlFacts("Driver/library version mismatch", None, None, ())),
            fires=False,
        ),
        Example("a file is missing", _machine(*_ALL[:2], nvml=_NOT_LOADED), fires=False),
        nvml=_NOT_LOADED,
    ),
    "driver_shows_no_gpu": _no_device_cases(
        Example("no device", _machine(*_ALL)),
        Example("unknown error", _machine(*_ALL, cuinit=_UNKNOWN_ERROR)),
        Example("in a container of gVisor", _machine(*_ALL, container=_IN_GVISOR)),
        Example(
            "in any other container",
            _machine(*_ALL, container=replace(_IN_GVISOR, sandbox=None)),
            fires=False,
        ),
        Example("hidden", _machine(*_ALL, environment=EnvironmentFacts({_MASK: "-1"})), fires=False),
        Example("MIG without an instance", _machine(*_ALL, nvml=NvmlFacts(None, MODULE, "12.2", (_MIG,))), fires=False),
        Example("not ready", _machine(*_ALL, cuinit="CUDA_ERROR_SYSTEM_NOT_READY"), fires=False),
        Example("NVML reports none", _machine(*_ALL, nvml=_NO_GPUS), fires=False),
        Example("nvidia_uvm is not loaded", _machine(*_ALL[1:]), fires=False),
    ),
    "device_files_not_usable": (
        Example("nobody's, in a user namespace", _unusable(_ROOTLESS, **_UNMAPPED)),
        Example("nobody's, in the first user namespace", _unusable(_WITH_RIGHT, **_UNMAPPED), fires=False),
        Example("nobody's, and open", _unusable(_ROOTLESS, None, **{**_UNMAPPED, "mode": "crw-rw-rw-"}), fires=False),
        Example("root without its right", _unusable(_WITHOUT_RIGHT, **_OF_OTHERS)),
        Example("root with it: a security module", _unusable(**_OF_OTHERS), fires=False),
        Example("nodev", _unusable(nodev=True)),
        Example("nodev, on the machine itself", _unusable(ContainerFacts(None, (), False, None), nodev=True)),
        Example("nodev does not matter to one that opens", _unusable(error=None, nodev=True), fires=False),
        Example("a folder", _unusable(error="EISDIR", mode="drwxr-xr-x")),
        Example("a plain file", _unusable(error=None, mode="-rw-rw-rw-")),
        Example("a device", _unusable(error=None), fires=False),
        Example("TensorFlow lists the GPU", _listed(_unusable(nodev=True)), fires=False),
    ),
    "kernel_module_hidden": (
        Example("as in https://github.com/netblue30/firejail/issues/6509", _hidden(in_sysfs=False)),
        Example("it is seen", _hidden(in_sysfs=True), fires=False),
        Example("not known", _hidden(in_sysfs=None), fires=False),
        Example("another error", _hidden(in_sysfs=False, cuinit=_UNKNOWN_ERROR), fires=False),
        Example("CUDA works", _hidden(in_sysfs=False, cuinit=""), fires=False),
    ),
    "user_not_in_device_group": (
        Example("video", _shut("crw-rw----")),
        Example("video, in a container", _shut("crw-rw----", container=DOCKER)),
        Example("root's group", _shut("crw-rw----", "root"), fires=False),
        Example("the group may not write", _shut("crw-r-----"), fires=False),
        Example("in the group", _shut("crw-rw----", groups=("video",)), fires=False),
        Example("open", _OPEN, fires=False),
    ),
    "device_files_for_root_alone": (
        Example("0600", _shut("crw-------", "root")),
        Example("0660, of root's group", _shut("crw-rw----", "root")),
        Example("of another group", _shut("crw-rw----"), fires=False),
        Example("0666", _shut("crw-rw-rw-", "root"), fires=False),
        Example("this is root", _shut("crw-------", "root", ("root",), system=_ROOT), fires=False),
        Example("TensorFlow lists them", _listed(_shut("crw-------", "root")), fires=False),
        Example("open", _OPEN, fires=False),
    ),
}

KEPT_THOUGH_PERMITTED = (
    Example("a service", _shut("crw-rw-rw-", "root")),
    Example("root", _shut("crw-------", "root", ("root",), system=_ROOT)),
    Example("a member of the group", _shut("crw-rw----", groups=("video",))),
    Example("a container", _shut("crw-rw-rw-", "root", container=DOCKER)),
    Example("a Slurm job with GPUs", _shut("crw-rw-rw-", container=_JOB, environment=_ALLOCATED)),
    Example("a Slurm job without GPUs: Slurm says more", _shut("crw-rw-rw-", container=_JOB), fires=False),
    Example("by the permissions", _shut("crw-rw----"), fires=False),
    Example("open", _OPEN, fires=False),
)
"""Of ``device_files_kept_by_control_group``, if opening the files was not tried."""
