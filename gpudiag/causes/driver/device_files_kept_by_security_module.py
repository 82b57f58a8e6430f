"""the permissions of the device files let this process in, but a security module blocks it

SELinux and AppArmor decide after the permissions of a file, by the label or the profile of the process: open(2) fails
with EACCES for root, too. Containers of Podman on Fedora and RHEL meet it most: the label container_t may not open
NVIDIA's devices. NVML says "Insufficient Permissions", and cuInit "no CUDA-capable device is detected".
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.device_files import permitted
from gpudiag.causes.shared.gpu_state import NoneListed, meaning
from gpudiag.causes.shared.machine import container
from gpudiag.fix import Where, check, configure, run, start
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.facts import DeviceNodeFacts, Facts, TriedFacts

CAUSE = Cause(
    title="the permissions of {files} let this process in, but {module} blocks it",
    fix=(
        start("podman run --security-opt=label=disable --device nvidia.com/gpu=all ..."),
        configure("sudo setsebool -P container_use_devices on", "or allows it for all containers", where=Where.HOST),
        check("sudo ausearch -m avc -ts recent | grep nvidia", "shows what was refused", where=Where.HOST),
    ),
    url="https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/troubleshooting.html",
    views=("host.driver.no_access", "host.driver.nvml_failed"),
)
_CONTROL = ("/dev/nvidiactl", "/dev/nvidia-uvm")


def find(facts: Facts, tried: TriedFacts, nodes: DeviceNodeFacts, none: NoneListed) -> Matches:
    let_in = {node.path: node for node in nodes.nodes if permitted(node, nodes)}
    kept = [attempt for attempt in tried.opened if attempt.error == "EACCES" and attempt.path in let_in]
    if not any(attempt.path in _CONTROL for attempt in kept):
        return
    label = tried.confined or ""
    selinux, inside = ":" in label, container(facts)
    look = "sudo ausearch -m avc -ts recent | grep nvidia" if selinux else "sudo dmesg | grep -i apparmor"
    option = "label=disable" if selinux or not label else "apparmor=unconfined"
    command = "podman run --device nvidia.com/gpu=all" if inside == "podman" else "docker run --gpus all"
    yield Match(
        evidence=(
            *(f"open {attempt.path}: {meaning(attempt.error)}" for attempt in kept),
            *(f"{let_in[attempt.path].mode} {attempt.path}: its permissions allow it" for attempt in kept),
            *([f"label or profile of this process: {label}"] if label else []),
        ),
        confidence=Confidence.PROVED if label else Confidence.LIKELY,
        figures={
            "files": " ".join(attempt.path for attempt in kept),
            "module": "SELinux" if selinux else "AppArmor" if label else "SELinux, AppArmor or the like",
        },
        fix=(
            run(f"{command} --security-opt={option} ...") if inside else None,
            configure("sudo setsebool -P container_use_devices on", "or allows it for all containers", where=Where.HOST)
            if inside and option == "label=disable"
            else run("sudo restorecon -v /dev/nvidia*", "restores the files' labels")
            if selinux
            else None,
            check(look, "shows what was refused", where=Where.HOST if inside else Where.HERE),
        ),
        stage=none.stage,
    )
