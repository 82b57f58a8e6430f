"""The driver runs, and there is no device for this process: device files are lacking or shut, or the GPU is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Any

from msgspec.structs import replace

from gpudiag.diagnosis.machine import (
    DOCKER,
    HOST_DRIVER,
    MODULE,
    NO_DEVICE,
    PCI,
    container,
    example_driver,
    example_evidence,
    example_facts,
    example_nodes,
    kept_for_others,
    on_the_bus,
    parts,
    stage_of_driver,
)
from gpudiag.diagnosis.rule import Evidence, Match, Rule, RuleCase
from gpudiag.diagnosis.steps import cuinit_error
from gpudiag.hostfacts import (
    ContainerFacts,
    DeviceNode,
    DeviceNodeFacts,
    EnvironmentFacts,
    NvmlFacts,
    SystemFacts,
    Unknown,
    example,
    example_gpu,
)
from gpudiag.model import Stage, Sure
from gpudiag.scope import mask_in_force

_GPU_FILE = re.compile(r"/dev/nvidia\d+")
_CONTROL_FILE = "/dev/nvidiactl"
_UVM_FILE = "/dev/nvidia-uvm"
_OF_OTHER_RULES = re.compile("Shared Library Not Found|version mismatch|Insufficient Permissions|lost")
"""What NVML says where another rule tells why."""
_MASK = "CUDA_VISIBLE_DEVICES"


def _why_no_device(evidence: Evidence) -> str:
    """Return the rule that tells why CUDA finds no GPU, though the driver runs; "" where that is told elsewhere.

    Elsewhere: masks, containers that were given none, modules that are not loaded (nvidia_uvm too), files that may not
    be opened. The files may be made at the first use of CUDA, so that it counts only where CUDA has failed.
    """
    known = parts(evidence)
    error = cuinit_error(evidence)
    if known is None or container(evidence) or not error:
        return ""
    driver, nvml, nodes = known
    if driver.kernel_module is None or evidence.found(HOST_DRIVER, "no_access") or kept_for_others(nodes):
        return ""
    paths = [node.path for node in nodes.nodes]
    if _missing(paths):
        return "device_files_missing" if nodes.pci_gpus or nvml.devices else ""
    if _UVM_FILE not in paths or not re.search("NO_DEVICE|ERROR_UNKNOWN", error):
        return ""
    if not nvml.devices:
        if nvml.error is not None:
            return "" if _OF_OTHER_RULES.search(nvml.error) else "driver_does_not_answer"
        return "gpu_refused_by_driver" if nodes.pci_gpus else ""
    visible = mask_in_force(evidence.facts).devices
    usable = [gpu for gpu in visible if gpu.mig_mode != "enabled" or gpu.mig_uuids]
    return "driver_shows_no_gpu" if usable else ""


def _missing(paths: list[str]) -> list[str]:
    """Return the device files without which no GPU can be reached, and that are not there."""
    missing = [] if any(map(_GPU_FILE.fullmatch, paths)) else ["/dev/nvidia0"]
    return [*missing, *([] if _CONTROL_FILE in paths else [_CONTROL_FILE])]


def _no_device(rule: str, sure: Sure, evidence: Evidence) -> Iterator[Match]:
    known = parts(evidence)
    if known is None or _why_no_device(evidence) != rule:
        return
    driver, nvml, nodes = known
    gpus = nodes.pci_gpus or tuple(device.pci_bus_id for device in nvml.devices)
    missing = _missing([node.path for node in nodes.nodes])
    answer = f"fails: {nvml.error}" if nvml.error else f"reports {len(nvml.devices)} GPU(s)"
    yield Match(
        evidence=(
            f"cuInit: {cuinit_error(evidence)}",
            on_the_bus(nodes) if nodes.pci_gpus else f"NVML: {', '.join(gpus)}",
            f"device files: {', '.join(node.path for node in nodes.nodes) or 'none'}",
            f"kernel module {driver.kernel_module}; NVML {answer}",
        ),
        sure=sure,
        figures={
            "pci": ", ".join(gpus),
            "module": driver.kernel_module,
            "gpus": len(nvml.devices),
            "missing": " and no ".join(missing),
            "error": nvml.error,
        },
    )


def _why_no_access(evidence: Evidence) -> tuple[str, tuple[DeviceNode, ...]]:
    """Return the rule that tells why this user may not open device files, and the files; "" where they may."""
    known = parts(evidence)
    found = evidence.found(HOST_DRIVER, "no_access")
    if known is None or not found or (evidence.trace is not None and evidence.trace.listed):
        return "", ()
    nodes = known[2]
    shut = tuple(node for node in nodes.nodes if node.path in str(found[0].figures["nodes"]).split())
    system = evidence.facts.system
    # Permissions never keep root out. Of files of another machine no group is known, and nobody is root there.
    root = bool(nodes.groups) and not isinstance(system, Unknown) and system.user == "root"
    by_mode = [] if root else [node for node in shut if not _permitted(node, nodes)]
    if not shut:
        return "", ()
    if not by_mode:
        return "device_files_denied", shut
    joinable = [node for node in by_mode if node.mode[4:6] == "rw" and node.group not in ("root", "")]
    return ("user_not_in_device_group" if joinable else "device_files_for_root_alone"), tuple(joinable or by_mode)


def _permitted(node: DeviceNode, nodes: DeviceNodeFacts) -> bool:
    """Return whether the permissions of ``node`` let this process read and write it."""
    return node.mode[7:9] == "rw" or (node.mode[4:6] == "rw" and node.group in nodes.groups)


def _no_access(rule: str, evidence: Evidence) -> Iterator[Match]:
    why, shut = _why_no_access(evidence)
    if why != rule:
        return
    nodes, system, where = evidence.facts.device_nodes, evidence.facts.system, evidence.facts.container
    groups = () if isinstance(nodes, Unknown) else nodes.groups
    user = "$USER" if isinstance(system, Unknown) else system.user
    group = shut[0].group
    runtime = container(evidence)
    if not isinstance(where, Unknown) and where.slurm_job is not None:
        allow = "srun --gres=gpu:1 ...  # asks Slurm for a GPU, which the step must do, too"
    elif runtime:
        allow = "docker run --gpus all ...  # starts the container anew, with its GPUs"
    else:
        allow = "systemctl show -p DeviceAllow -p DevicePolicy UNIT  # of the service or slice that this runs in"
    yield Match(
        evidence=(
            *(f"{node.mode} {node.path}, of the group {node.group or '?'}" for node in shut),
            f"this process is of the user {user} and in {', '.join(groups) or 'no group that is known'}",
        ),
        figures={
            "files": " ".join(node.path for node in shut),
            "user": user,
            "group": group,
            "join": f"docker run --group-add $(getent group {group} | cut -d: -f3) ...  # the number is the host's"
            if runtime
            else f"sudo usermod -aG {group} {user}",
            "then": "# in Kubernetes: securityContext.supplementalGroups" if runtime else "# log in again",
            "allow": allow,
        },
        stage=stage_of_driver(evidence),
    )


_ALL = ("/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidiactl")
_NO_GPUS = NvmlFacts(None, MODULE, "12.2", ())
_NOT_LOADED = NvmlFacts("Driver Not Loaded", None, None, ())
_UNKNOWN_ERROR = "CUDA_ERROR_UNKNOWN: unknown error"


def _machine(*files: str, cuinit: str = NO_DEVICE, **families: Any) -> Evidence:
    """Return the evidence of a machine with a GPU, a driver and these device files."""
    return example_evidence(example_facts(device_nodes=example_nodes(*files), **families), cuinit=cuinit)


def _no_device_cases(*cases: RuleCase, files: tuple[str, ...] = _ALL, nvml: NvmlFacts | None = None) -> Any:
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
    return (*cases, *(RuleCase(name, evidence, fires=False) for name, evidence in silent.items()))


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
_MIG = replace(example_gpu(), mig_mode="enabled")
_OPEN = _machine(*_ALL, cuinit="")
_DRIVER_DOCUMENT = "https://download.nvidia.com/XFree86/Linux-x86_64/535.104.05/README/"

RULES = (
    Rule(
        id="device_files_missing",
        stage=Stage.DRIVER,
        cause="NVIDIA's kernel module {module} runs for GPU {pci}, and there is no device file {missing}",
        why="""
        Programs reach a GPU through the files /dev/nvidia0, /dev/nvidiactl and /dev/nvidia-uvm. The X server or the
        helper nvidia-modprobe makes them, which must be installed and have its setuid bit; on a server without a
        desktop they are missing until then. cuInit answers "no CUDA-capable device is detected", and NVML "Driver Not
        Loaded" where /dev/nvidiactl is missing, though the module is loaded.
        """,
        fix=(
            "sudo nvidia-modprobe -c 0 -u  # makes the files now",
            "sudo apt install nvidia-modprobe nvidia-persistenced  # makes them at each start",
        ),
        url=f"{_DRIVER_DOCUMENT}faq.html",
        find=partial(_no_device, "device_files_missing", Sure.PROVED),
        cases=_no_device_cases(
            RuleCase("none", _machine()),
            RuleCase("the control file alone", _machine("/dev/nvidiactl")),
            RuleCase("all but the control file", _machine(*_ALL[:2], nvml=_NOT_LOADED)),
            RuleCase("all there", _machine(*_ALL), fires=False),
            files=(),
        ),
    ),
    Rule(
        id="gpu_refused_by_driver",
        stage=Stage.DRIVER,
        cause="NVIDIA's driver {module} runs and refuses GPU {pci}: it reports no GPU at all",
        why="""
        The kernel's log says why: the GPU is too old for this driver (580 is the last for Maxwell, Pascal and Volta) or
        too new for it, the open kernel modules are installed for a GPU older than Turing, the GPU has too little power
        or a bad slot ("RmInitAdapter failed"), or the firmware gave it no address space.
        """,
        fix=(
            "sudo dmesg | grep -i -e nvrm -e xid  # the reason",
            '# "not supported by open nvidia.ko": install the proprietary module, such as nvidia-driver-535',
            '# "requires legacy driver", "not supported by the driver": install the release that it names',
        ),
        url=f"{_DRIVER_DOCUMENT}supportedchips.html",
        find=partial(_no_device, "gpu_refused_by_driver", Sure.LIKELY),
        cases=_no_device_cases(
            RuleCase("NVML reports none", _machine(*_ALL, nvml=_NO_GPUS)),
            RuleCase("NVML reports it", _machine(*_ALL), fires=False),
            RuleCase("NVML fails", _machine(*_ALL, nvml=NvmlFacts("Unknown Error", None, None, ())), fires=False),
            RuleCase("not ready", _machine(*_ALL, nvml=_NO_GPUS, cuinit="CUDA_ERROR_SYSTEM_NOT_READY"), fires=False),
            nvml=_NO_GPUS,
        ),
    ),
    Rule(
        id="driver_does_not_answer",
        stage=Stage.DRIVER,
        cause="neither CUDA nor NVML ({error}) reaches NVIDIA's kernel module {module}, though it is loaded",
        why="""
        The module is loaded and its device files are there, and what opens them gets no answer: the files have the
        numbers of an earlier start of the module, the module did not set up the GPU, or it is in a failed state. NVML
        then says "Driver Not Loaded" or "Unknown Error", and cuInit that there is no device. To load the module again
        changes nothing while it is loaded.
        """,
        fix=(
            "ls -l /dev/nvidia*; grep nvidia /proc/devices  # the numbers must be the same",
            "sudo dmesg | grep -i -e nvrm -e xid",
            "sudo nvidia-modprobe -c 0 -u  # gives the files the module's numbers",
            "sudo reboot  # where that does not help",
        ),
        url=f"{_DRIVER_DOCUMENT}faq.html",
        find=partial(_no_device, "driver_does_not_answer", Sure.POSSIBLE),
        cases=_no_device_cases(
            RuleCase("not loaded, it says", _machine(*_ALL, nvml=_NOT_LOADED)),
            RuleCase("unknown error", _machine(*_ALL, nvml=NvmlFacts("Unknown Error", None, None, ()))),
            RuleCase("NVML reports the GPU", _machine(*_ALL), fires=False),
            RuleCase("NVML reports none", _machine(*_ALL, nvml=_NO_GPUS), fires=False),
            RuleCase(
                "two versions",
                _machine(*_ALL, nvml=NvmlFacts("Driver/library version mismatch", None, None, ())),
                fires=False,
            ),
            RuleCase("a file is missing", _machine(*_ALL[:2], nvml=_NOT_LOADED), fires=False),
            nvml=_NOT_LOADED,
        ),
    ),
    Rule(
        id="driver_shows_no_gpu",
        stage=Stage.DRIVER,
        cause="CUDA finds no GPU, though NVML reports {gpus} and nothing hides them",
        why="""
        The usual reasons of "no CUDA-capable device is detected" are not at work here: CUDA_VISIBLE_DEVICES lets GPUs
        through, the device files are there and may be opened, and the module is loaded. What is left: a module
        nvidia_uvm of another version or in a failed state (after suspend, for example), a GPU that failed, or a driver
        that was half upgraded.
        """,
        fix=(
            "sudo rmmod nvidia_uvm && sudo modprobe nvidia_uvm  # no GPU being in use",
            "sudo dmesg | grep -i -e nvrm -e xid",
            "sudo reboot",
        ),
        url="https://docs.nvidia.com/deploy/xid-errors/index.html",
        find=partial(_no_device, "driver_shows_no_gpu", Sure.POSSIBLE),
        cases=_no_device_cases(
            RuleCase("no device", _machine(*_ALL)),
            RuleCase("unknown error", _machine(*_ALL, cuinit=_UNKNOWN_ERROR)),
            RuleCase("hidden", _machine(*_ALL, environment=EnvironmentFacts({_MASK: "-1"})), fires=False),
            RuleCase(
                "MIG without an instance", _machine(*_ALL, nvml=NvmlFacts(None, MODULE, "12.2", (_MIG,))), fires=False
            ),
            RuleCase("not ready", _machine(*_ALL, cuinit="CUDA_ERROR_SYSTEM_NOT_READY"), fires=False),
            RuleCase("NVML reports none", _machine(*_ALL, nvml=_NO_GPUS), fires=False),
            RuleCase("nvidia_uvm is not loaded", _machine(*_ALL[1:]), fires=False),
        ),
    ),
    Rule(
        id="user_not_in_device_group",
        stage=Stage.DRIVER,
        cause="the user {user} may not open {files}: the files belong to the group {group}",
        why="""
        The driver's device files are open to everybody by default; some distributions and clusters give them to a group
        (video, render, vglusers). Who is not in it has no GPU, and root has. In a container the number of the group
        counts, and a container's user is in the groups it was started with alone. nvidia-smi says "Insufficient
        Permissions".
        """,
        fix=("{join}", "{then}"),
        url=f"{_DRIVER_DOCUMENT}faq.html",
        find=partial(_no_access, "user_not_in_device_group"),
        cases=(
            RuleCase("video", _shut("crw-rw----")),
            RuleCase("video, in a container", _shut("crw-rw----", container=DOCKER)),
            RuleCase("root's group", _shut("crw-rw----", "root"), fires=False),
            RuleCase("the group may not write", _shut("crw-r-----"), fires=False),
            RuleCase("in the group", _shut("crw-rw----", groups=("video",)), fires=False),
            RuleCase("open", _OPEN, fires=False),
        ),
    ),
    Rule(
        id="device_files_for_root_alone",
        stage=Stage.DRIVER,
        cause="only root may open {files}",
        why="""
        The driver makes its device files open to everybody, unless its module has been given other permissions
        (NVreg_DeviceFileMode, NVreg_DeviceFileGID), or a udev rule or a script has changed them.
        """,
        fix=(
            "sudo chmod 0666 {files}  # until the next start",
            "grep -rn -e NVreg_DeviceFile -e nvidia /etc/modprobe.d /etc/udev/rules.d  # what set it",
            "echo 'options nvidia NVreg_DeviceFileMode=0666' | sudo tee /etc/modprobe.d/nvidia-files.conf",
        ),
        url=f"{_DRIVER_DOCUMENT}faq.html",
        find=partial(_no_access, "device_files_for_root_alone"),
        cases=(
            RuleCase("0600", _shut("crw-------", "root")),
            RuleCase("0660, of root's group", _shut("crw-rw----", "root")),
            RuleCase("of another group", _shut("crw-rw----"), fires=False),
            RuleCase("0666", _shut("crw-rw-rw-", "root"), fires=False),
            RuleCase("this is root", _shut("crw-------", "root", ("root",), system=_ROOT), fires=False),
            RuleCase("TensorFlow lists them", _listed(_shut("crw-------", "root")), fires=False),
            RuleCase("open", _OPEN, fires=False),
        ),
    ),
    Rule(
        id="device_files_denied",
        stage=Stage.DRIVER,
        cause="the permissions of {files} let this process in, and the kernel's control group keeps it out",
        why="""
        Slurm, container runtimes and systemd allow a process the devices of its job alone, by a control group, whatever
        the permissions of the files are. A job that asked for no GPU has none. In a container that had its GPUs, a
        `systemctl daemon-reload` on the host takes them away: nvidia-smi then says "Failed to initialize NVML: Unknown
        Error".
        """,
        fix=("{allow}",),
        url="https://slurm.schedmd.com/gres.html",
        find=partial(_no_access, "device_files_denied"),
        cases=(
            RuleCase("a service", _shut("crw-rw-rw-", "root")),
            RuleCase("root", _shut("crw-------", "root", ("root",), system=_ROOT)),
            RuleCase("a member of the group", _shut("crw-rw----", groups=("video",))),
            RuleCase("a container", _shut("crw-rw-rw-", "root", container=DOCKER)),
            RuleCase("a Slurm job", _shut("crw-rw-rw-", container=ContainerFacts(None, (), False, "17"))),
            RuleCase("by the permissions", _shut("crw-rw----"), fires=False),
            RuleCase("open", _OPEN, fires=False),
        ),
    ),
)
