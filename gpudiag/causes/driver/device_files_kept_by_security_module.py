"""the permissions of the device files let this process in, but a security module blocks it

SELinux and AppArmor decide after the permissions of a file, by the label or the profile of the process: open(2) fails
with EACCES for root, too. Containers of Podman on Fedora and RHEL meet it most: the label container_t may not open
NVIDIA's devices. NVML says "Insufficient Permissions", and cuInit "no CUDA-capable device is detected".
"""

from __future__ import annotations

from gpudiag.cause import Cause, Matches
from gpudiag.causes.shared.refusals import CONTROL, Refusals, Refuser
from gpudiag.fix import Action, Where, check, configure, run, run_container
from gpudiag.knowledge.sandboxes import BY_NAME
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.facts import TriedFacts

CAUSE = Cause(
    title="the permissions of {files} let this process in, but {module} blocks it",
    fix=(
        *BY_NAME["podman"].security,
        check("sudo ausearch -m avc -ts recent | grep nvidia", "shows what was refused", where=Where.HOST),
    ),
    url="https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/troubleshooting.html",
    views=("host.driver.no_access", "host.driver.nvml_failed"),
)


def find(files: Refusals, tried: TriedFacts) -> Matches:
    kept = files.by(Refuser.SECURITY_MODULE)
    if not any(refusal.node.path in CONTROL for refusal in kept):
        return
    label = tried.confined or ""
    selinux = ":" in label
    yield files.match(
        kept,
        (*_let_in(files, label), _look(files, selinux=selinux)),
        *([f"label or profile of this process: {label}"] if label else []),
        confidence=Confidence.PROVED if label else Confidence.LIKELY,
        module="SELinux" if selinux else "AppArmor" if label else "SELinux, AppArmor or the like",
    )


def _let_in(files: Refusals, label: str) -> tuple[Action, ...]:
    sandbox, kept = files.sandbox, files.by(Refuser.SECURITY_MODULE)
    if label.startswith("snap."):
        snap = label.split(".")[1]
        return (configure(f"sudo snap connect {snap}:opengl", "then start the snap again", where=Where.HOST),)
    if sandbox is None or not sandbox.is_container:
        return (run("sudo restorecon -v /dev/nvidia*", "restores the files' labels"),) if ":" in label else ()
    if not sandbox.security:
        return files.actions((sandbox.give,), kept)
    if (":" in label or not label) and sandbox.name == "docker":  # its own words are AppArmor's, as on Ubuntu
        return (run_container("--gpus all", "--security-opt=label=disable"), BY_NAME["podman"].security[1])
    return files.actions(sandbox.security, kept)


def _look(files: Refusals, *, selinux: bool) -> Action:
    command = "sudo ausearch -m avc -ts recent | grep nvidia" if selinux else "sudo dmesg | grep -i apparmor"
    inside = files.sandbox is not None and files.sandbox.is_container
    return check(command, "shows what was refused", where=Where.HOST if inside else Where.HERE)
