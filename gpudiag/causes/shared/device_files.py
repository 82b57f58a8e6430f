"""Shared by causes: device files that are lacking or shut, and a GPU that the driver refuses."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudiag.cause import Evidence, Match
from gpudiag.causes.shared.machine import HOST_DRIVER, container, kept_for_others, on_the_bus, parts, stage_of_driver
from gpudiag.causes.shared.steps import cuinit_error
from gpudiag.hostfacts import DeviceNode, DeviceNodeFacts, Unknown
from gpudiag.model import Sure
from gpudiag.scope import mask_in_force

GPU_FILE = re.compile(r"/dev/nvidia\d+")
CONTROL_FILE = "/dev/nvidiactl"
UVM_FILE = "/dev/nvidia-uvm"
OF_OTHER_RULES = re.compile("Shared Library Not Found|version mismatch|Insufficient Permissions|lost")
"""What NVML says where another rule tells why."""


def why_no_device(evidence: Evidence) -> str:
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
    if missing_files(paths):
        return "device_files_missing" if nodes.pci_gpus or nvml.devices else ""
    if UVM_FILE not in paths or not re.search("NO_DEVICE|ERROR_UNKNOWN", error):
        return ""
    if not nvml.devices:
        if nvml.error is not None:
            return "" if OF_OTHER_RULES.search(nvml.error) else "driver_does_not_answer"
        return "gpu_refused_by_driver" if nodes.pci_gpus else ""
    visible = mask_in_force(evidence.facts).devices
    usable = [gpu for gpu in visible if gpu.mig_mode != "enabled" or gpu.mig_uuids]
    return "driver_shows_no_gpu" if usable else ""


def missing_files(paths: list[str]) -> list[str]:
    """Return the device files without which no GPU can be reached, and that are not there."""
    missing = [] if any(map(GPU_FILE.fullmatch, paths)) else ["/dev/nvidia0"]
    return [*missing, *([] if CONTROL_FILE in paths else [CONTROL_FILE])]


def no_device(rule: str, sure: Sure, evidence: Evidence) -> Iterator[Match]:
    known = parts(evidence)
    if known is None or why_no_device(evidence) != rule:
        return
    driver, nvml, nodes = known
    gpus = nodes.pci_gpus or tuple(device.pci_bus_id for device in nvml.devices)
    missing = missing_files([node.path for node in nodes.nodes])
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


def why_no_access(evidence: Evidence) -> tuple[str, tuple[DeviceNode, ...]]:
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
    by_mode = [] if root else [node for node in shut if not permitted(node, nodes)]
    if not shut:
        return "", ()
    if not by_mode:
        return "device_files_denied", shut
    joinable = [node for node in by_mode if node.mode[4:6] == "rw" and node.group not in ("root", "")]
    return ("user_not_in_device_group" if joinable else "device_files_for_root_alone"), tuple(joinable or by_mode)


def permitted(node: DeviceNode, nodes: DeviceNodeFacts) -> bool:
    """Return whether the permissions of ``node`` let this process read and write it."""
    return node.mode[7:9] == "rw" or (node.mode[4:6] == "rw" and node.group in nodes.groups)


def no_access(rule: str, evidence: Evidence) -> Iterator[Match]:
    why, shut = why_no_access(evidence)
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


DRIVER_DOCUMENT = "https://download.nvidia.com/XFree86/Linux-x86_64/535.104.05/README/"
