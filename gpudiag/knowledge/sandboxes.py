"""What may stand between a process and the GPUs of its machine: container runtimes and sandboxes, as one table.

Each row has the signs by which the kernel and the runtime show it, and how it lets a process in, in its own words:
:attr:`Sandbox.give` starts it with GPUs, the others answer one kind of refusal each.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpudiag.fix import Action, Kind, Where, configure, note, run, start


@dataclass(frozen=True)
class Sandbox:
    """A container runtime or a sandbox. The actions have the fields ``allow``, ``files``, ``group``, ``options``,
    ``systemctl`` and ``unit``."""

    name: str
    words: str
    """The sandbox in a sentence, such as ``this container of Docker``."""
    give: Action
    """How it is started with GPUs."""
    variables: tuple[str, ...] = ()
    """Environment variables that only it sets."""
    files: tuple[str, ...] = ()
    """Files that only it makes, below /."""
    names: tuple[str, ...] = ()
    """Its names in the path of a control group or of a mount."""
    init: str = ""
    """The name of its first process, if that is its own."""
    is_container: bool = True
    """False if the process has the files of the machine: then the machine itself is not the host of a container."""
    rules: tuple[Action, ...] = ()
    """What to do if its device control group refuses a device."""
    join: tuple[Action, ...] = ()
    """How a process in it becomes a member of the group that owns the devices."""
    unmapped: tuple[Action, ...] = ()
    """What to do if the owner of the devices has no name in its user namespace."""
    renew: tuple[Action, ...] = ()
    """How its own copy of the driver's libraries becomes that of the kernel module, if it has one."""
    open: tuple[Action, ...] = ()
    """How the devices get permissions that let everybody in."""
    security: tuple[Action, ...] = ()
    """How its security profile lets the devices in; SELinux and AppArmor have their own words otherwise."""


def _on_host(command: str, note_: str = "") -> Action:
    return configure(command, note_, where=Where.HOST)


_AGAIN = run(
    "docker restart CONTAINER", "gives the container its GPUs again", kind=Kind.START_CONTAINER, where=Where.HOST
)
_LINKS = _on_host("sudo nvidia-ctk system create-dev-char-symlinks --create-all", "they stay")
_CGROUPS = _on_host(
    "sudo nvidia-ctk config --in-place --set nvidia-container-cli.no-cgroups=false",
    "if no container ever got its GPUs: true is only for rootless containers",
)
_OPEN_TO_ALL = _on_host("sudo chmod 0666 {files}", "or opens the files to everybody, until the next start of the host")
_COMPOSE = "in Compose: deploy.resources.reservations.devices, capabilities: [gpu]"
_NUMBER = "$(stat -c %g /dev/nvidiactl)"
_POD_GROUP = note("in Kubernetes: securityContext.supplementalGroups", where=Where.SCHEDULER)
_LXC = start("lxc config device add NAME gpu gpu; lxc config set NAME nvidia.runtime true; lxc restart NAME")

SANDBOXES: tuple[Sandbox, ...] = (
    Sandbox(
        "apptainer",
        "this container of Apptainer",
        start("apptainer exec --nv IMAGE COMMAND"),
        variables=("APPTAINER_CONTAINER",),
    ),
    Sandbox(
        "singularity",
        "this container of Singularity",
        start("singularity exec --nv IMAGE COMMAND"),
        variables=("SINGULARITY_CONTAINER",),
        files=(".singularity.d",),
    ),
    Sandbox(
        "charliecloud",
        "this container of Charliecloud",
        _on_host("ch-fromhost --nvidia IMAGE", "copies the driver's libraries into the image"),
        variables=("CH_RUNNING",),
    ),
    Sandbox(
        "flatpak",
        "this Flatpak",
        _on_host("flatpak override --user --device=all APPLICATION", "then start the application again"),
        files=(".flatpak-info",),
        renew=(_on_host("flatpak update", "brings the libraries of the kernel module's version"),),
        unmapped=(_OPEN_TO_ALL,),
    ),
    Sandbox(
        "distrobox",
        "this container of Distrobox",
        start("distrobox create --nvidia --name NAME --image IMAGE"),
        variables=("DISTROBOX_ENTER_PATH",),
    ),
    Sandbox(
        "toolbox",
        "this container of Toolbx",
        _on_host("sudo nvidia-ctk cdi generate --output=/var/run/cdi/nvidia.yaml", "then: toolbox enter"),
        files=("run/.toolboxenv",),
    ),
    Sandbox(
        "docker",
        "this container of Docker",
        start("docker run --gpus all {options}IMAGE", _COMPOSE),
        files=(".dockerenv",),
        names=("docker",),
        rules=(_AGAIN, _LINKS, _CGROUPS),
        join=(start(f"docker run --group-add {_NUMBER} ...", "run it on the host: the number is the host's"),),
        unmapped=(
            start("docker run --userns=host --gpus all ...", "if the daemon maps users (userns-remap)"),
            _OPEN_TO_ALL,
        ),
        security=(start("docker run --security-opt apparmor=unconfined --gpus all ..."),),
    ),
    Sandbox(
        "podman",
        "this container of Podman",
        start("podman run --device nvidia.com/gpu=all IMAGE"),
        files=("run/.containerenv",),
        names=("libpod", "overlay-containers"),
        rules=(
            start("podman run --device nvidia.com/gpu=all ...", "passes the devices and their rules in"),
            _on_host("sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml", "if devices were added since"),
        ),
        join=(start(f"podman run --group-add {_NUMBER} ...", "run it on the host: the number is the host's"),),
        unmapped=(
            start("podman run --group-add keep-groups --device nvidia.com/gpu=all ...", "needs the runtime crun"),
            _OPEN_TO_ALL,
        ),
        security=(
            start("podman run --security-opt=label=disable --device nvidia.com/gpu=all ..."),
            _on_host("sudo setsebool -P container_use_devices on", "or allows it for all containers"),
        ),
    ),
    Sandbox(
        "kubernetes",
        "this pod",
        start("resources: {{limits: {{nvidia.com/gpu: 1}}}}", "put it into the container's part of the pod"),
        names=("kubelet", "kubepods"),
        rules=(
            run("kubectl delete pod POD", "its successor gets its GPUs again", kind=Kind.START_CONTAINER),
            _LINKS,
            _CGROUPS,
        ),
        join=(_POD_GROUP,),
        unmapped=(note("set hostUsers: true in the pod, or supplementalGroups", kind=Kind.START_CONTAINER),),
    ),
    Sandbox(
        "containerd",
        "this container of containerd",
        start("nerdctl run --gpus all {options}IMAGE"),
        names=("cri-containerd", "containerd"),
        rules=(_LINKS, _CGROUPS),
        join=(start(f"nerdctl run --group-add {_NUMBER} ...", "run it on the host: the number is the host's"),),
    ),
    Sandbox("cri-o", "this container of CRI-O", start("podman run --device nvidia.com/gpu=all IMAGE"), names=("crio",)),
    Sandbox(
        "lxc",
        "this container of LXC",
        _LXC,
        names=("lxc",),
        rules=(
            note(
                "in the container's configuration, a line for each number: {allow}; the numbers are those of "
                "`grep nvidia /proc/devices`, and may change when the host starts",
                kind=Kind.CONFIGURE,
                where=Where.HOST,
            ),
            start("lxc config device add NAME gpu gpu; lxc restart NAME", "in LXD and Incus: writes the rules itself"),
        ),
        join=(start("lxc config device set NAME gpu gid $(stat -c %g /dev/nvidiactl)", "run it on the host"),),
        unmapped=(
            start("lxc config device set NAME gpu mode=0666", "or gid=GROUP, a group of the container"),
            _OPEN_TO_ALL,
        ),
        open=(start("lxc config device set NAME gpu mode=0666", "or gid=GROUP, a group of the container"),),
        security=(note("lxc.apparmor.profile = unconfined in the container's configuration", kind=Kind.CONFIGURE),),
    ),
    Sandbox(
        "systemd-nspawn",
        "this container of systemd-nspawn",
        start(
            "sudo systemd-nspawn -D FOLDER --bind=/dev/nvidiactl --bind=/dev/nvidia-uvm --bind=/dev/nvidia0",
            "with the driver's libraries, too: --bind-ro=/usr/lib/x86_64-linux-gnu/libcuda.so.1",
        ),
        rules=(
            _on_host(
                "sudo systemctl set-property systemd-nspawn@NAME.service 'DeviceAllow=char-nvidia-frontend rw' "
                "'DeviceAllow=char-nvidia-uvm rw'"
            ),
        ),
    ),
    Sandbox(
        "bubblewrap",
        "this sandbox of bubblewrap",
        start("bwrap --dev-bind /dev /dev ...", "--bind and --dev make a /dev without GPUs"),
        init="bwrap",
    ),
    Sandbox(
        "firejail",
        "this sandbox of Firejail",
        start("firejail --ignore=private-dev ...", "the profile's private-dev makes a /dev without GPUs"),
    ),
    Sandbox(
        "gvisor",
        "gVisor",
        _on_host(
            "sudo runsc install -- --nvproxy=true && sudo systemctl restart docker",
            "then: docker run --runtime=runsc --gpus all IMAGE",
        ),
        is_container=False,
    ),
    Sandbox(
        "snap",
        "this snap",
        _on_host("sudo snap connect {unit}:opengl", "then start the snap again"),
        is_container=False,
        rules=(_on_host("sudo snap connect {unit}:opengl", "then start the snap again"),),
        security=(_on_host("sudo snap connect {unit}:opengl", "then start the snap again"),),
    ),
    Sandbox(
        "systemd",
        "the systemd unit {unit}",
        configure("{systemctl} edit {unit}", "write: [Service] PrivateDevices=no; then restart the unit"),
        is_container=False,
        rules=(
            configure(
                "{systemctl} edit {unit}",
                "write: [Service] DeviceAllow=char-nvidia rw, DeviceAllow=char-nvidiactl rw, "
                "DeviceAllow=char-nvidia-frontend rw and DeviceAllow=char-nvidia-uvm rw, a line each",
            ),
            configure("{systemctl} restart {unit}"),
        ),
        join=(
            configure("{systemctl} edit {unit}", "write: [Service] SupplementaryGroups={group}; then restart the unit"),
        ),
    ),
    Sandbox(
        "chroot",
        "this chroot",
        configure("sudo mount --rbind /dev FOLDER/dev", "outside; FOLDER is the folder of the chroot"),
        is_container=False,
    ),
)
"""Every row, the one whose signs are the most reliable first."""
BY_NAME = {sandbox.name: sandbox for sandbox in SANDBOXES}
_UNIT = re.compile(r"/([^/]+\.service)$")
_SNAP = re.compile(r"/snap\.([\w-]+)\.")


def of_unit(control_group: str) -> tuple[str, str] | None:
    """Return the sandbox whose unit a control group is, and the name to write in its commands.

    Such as ``/system.slice/ollama.service`` or ``/user.slice/.../snap.firefox.firefox-1.scope``. The service of a
    user's own manager, in which every program of a desktop runs, is no sandbox.
    """
    if snap := _SNAP.search(control_group):
        return "snap", snap[1]
    unit = _UNIT.search(control_group)
    return ("systemd", unit[1]) if unit and not unit[1].startswith("user@") else None
