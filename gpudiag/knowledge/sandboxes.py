"""What may stand between a process and the GPUs of its machine: container runtimes and sandboxes, as one table.

Each row has the signs by which the kernel and the runtime show it, and how it lets a process in, in its own words:
:attr:`Sandbox.start` says what ``docker run`` is told, :attr:`Sandbox.give` starts it with GPUs, the others answer one
kind of refusal each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from gpudiag.fix import Action, Kind, Role, Where, configure, note, run, run_container, start

_Start = Callable[[Sequence[str], str], tuple[str, str]]
"""Takes options of ``docker run``, each with its value, and the image; returns a command and what is said about it."""
_GPUS = "--gpus all"
_GIVE = run_container(_GPUS, image="IMAGE")


def _parts(options: Sequence[str]) -> list[tuple[str, str]]:
    """Return the name and the value of each option, such as ``-e A=b`` or ``--shm-size=1g``."""
    return [option.partition(" " if " " in option else "=")[::2] for option in options]


def _like_docker(options: Sequence[str], image: str, program: str, gpus: str = _GPUS) -> tuple[str, str]:
    words = [gpus if option == _GPUS else option for option in options]
    return " ".join((program, "run", *words, image)), ""


def _podman(options: Sequence[str], image: str) -> tuple[str, str]:
    # A name of a group is looked up in the image; the user's own groups are those of the host.
    kept = [
        "--group-add keep-groups" if name == "--group-add" and value.isalpha() else option
        for option, (name, value) in zip(options, _parts(options), strict=True)
    ]
    return _like_docker(list(dict.fromkeys(kept)), image, "podman", "--device nvidia.com/gpu=all")


_OF_APPTAINER = {"--gpus": "--nv", "-e": "--env", "-v": "--bind"}
_BY_THE_HOST = {
    "--shm-size": "this container has /dev/shm of the host: make it larger there",
    "--ipc": "this container has /dev/shm of the host: make it larger there",
    "--ulimit": "this container has the limits of the shell that starts it: ulimit -l unlimited there",
    "--group-add": "this container has the groups of the user who starts it: add them on the host",
}


def _apptainer(options: Sequence[str], image: str, program: str = "apptainer") -> tuple[str, str]:
    parts = _parts(options)
    words = [
        _OF_APPTAINER[name] if name == "--gpus" else f"{_OF_APPTAINER[name]} {value}"
        for name, value in parts
        if name in _OF_APPTAINER
    ]
    if not words:
        return "", next((_BY_THE_HOST[name] for name, _ in parts if name in _BY_THE_HOST), "")
    source = f"docker://{image}" if "/" in image else image
    return " ".join((program, "exec", *words, source, "COMMAND")), ""


def _kubernetes(options: Sequence[str], image: str) -> tuple[str, str]:
    given: dict[str, list[str]] = {}
    for name, value in _parts(options):
        given.setdefault(name, []).append(value)
    parts = [f"image: {image}"] if "/" in image else []
    if "--gpus" in given:
        parts.append("resources: {limits: {nvidia.com/gpu: 1}}")
    pairs = [value.partition("=")[::2] for value in given.get("-e", ())]
    if variables := ", ".join(f'{{name: {name}, value: "{value}"}}' for name, value in pairs):
        parts.append(f"env: [{variables}]")
    context = [f"capabilities: {{add: [{value}]}}" for value in given.get("--cap-add", ())]
    if any("seccomp" in value for value in given.get("--security-opt", ())):
        context.append("seccompProfile: {type: Unconfined}")
    if context:
        parts.append(f"securityContext: {{{', '.join(context)}}}")
    if parts:
        return ", ".join(parts), "put it into the container's part of the pod"
    if given.keys() & {"--shm-size", "--ipc"}:
        text = "volumes: [{name: shm, emptyDir: {medium: Memory}}]"
        mount = "volumeMounts: [{name: shm, mountPath: /dev/shm}]"
        return text, f"put it into the pod's spec, and mount it at /dev/shm: {mount}"
    if "--group-add" in given:
        number = given["--group-add"][0]
        text = f"securityContext: {{supplementalGroups: [{number if number.isdecimal() else 'GROUP'}]}}"
        return text, "put it into the pod's spec, with the number of the host"
    return "", ""


def _lxc(options: Sequence[str], image: str) -> tuple[str, str]:
    command = "lxc config device add NAME gpu gpu; lxc config set NAME nvidia.runtime true; lxc restart NAME"
    return (command if _GPUS in options else ""), ""


@dataclass(frozen=True)
class Sandbox:
    """A container runtime or a sandbox. The actions have the fields that
    :meth:`gpudiag.causes.shared.refusals.Refusals.actions` fills in."""

    name: str
    words: str
    """The sandbox in a sentence, such as ``this container of Docker``."""
    give: Action = _GIVE
    """How it is started with GPUs."""
    start: _Start | None = None
    """How it is told what ``docker run`` is told, an empty command if it has no word for it; None for Docker itself,
    and where only :attr:`give` is known."""
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
    is_kept: bool = False
    """True if its user changes it in place, as a machine, and builds no image for it."""
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


def _on_host(command: str, note_: str = "", role: Role = Role.FIX) -> Action:
    return configure(command, note_, role=role, where=Where.HOST)


_AGAIN = run(
    "docker restart CONTAINER", "gives the container its GPUs again", kind=Kind.START_CONTAINER, where=Where.HOST
)
_LINKS = _on_host("sudo nvidia-ctk system create-dev-char-symlinks --create-all", "they stay")
_CGROUPS = _on_host(
    "sudo nvidia-ctk config --in-place --set nvidia-container-cli.no-cgroups=false",
    "if no container ever got its GPUs: true is only for rootless containers",
)
_OPEN_TO_ALL = _on_host(
    "sudo chmod 0666 {files}", "opens the files to everybody, until the next start of the host", Role.ALTERNATIVE
)
_JOIN = run_container("--group-add {group_id}", note="the number of the files' group on the host")

_SPECIFICATION = _on_host(
    "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml", "names the libraries that the host has now"
)
_ANEW = "a new container gets the libraries that the host has now: this one keeps those that it was created with"

SANDBOXES: tuple[Sandbox, ...] = (
    Sandbox(
        "apptainer",
        "this container of Apptainer",
        start=_apptainer,
        variables=("APPTAINER_CONTAINER",),
    ),
    Sandbox(
        "singularity",
        "this container of Singularity",
        start=partial(_apptainer, program="singularity"),
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
        "enroot",
        "this container of Enroot",
        start(
            "NVIDIA_VISIBLE_DEVICES=all enroot start NAME", "in Slurm: srun --gres=gpu:1 --container-image=IMAGE ..."
        ),
        variables=("ENROOT_ROOTFS",),
        renew=(start("enroot start NAME", "mounts the libraries that the host has now"),),
    ),
    Sandbox(
        "flatpak",
        "this Flatpak",
        _on_host("flatpak override --user --device=all {unit}", "then start the application again"),
        files=(".flatpak-info",),
        renew=(_on_host("flatpak update", "brings the libraries of the kernel module's version"),),
        unmapped=(_OPEN_TO_ALL,),
    ),
    Sandbox(
        "distrobox",
        "this container of Distrobox",
        start("distrobox create --nvidia --name NAME --image IMAGE"),
        variables=("DISTROBOX_ENTER_PATH",),
        is_kept=True,
    ),
    Sandbox(
        "toolbox",
        "this container of Toolbx",
        _on_host("sudo nvidia-ctk cdi generate --output=/var/run/cdi/nvidia.yaml", "then: toolbox enter"),
        start=_podman,
        files=("run/.toolboxenv",),
        is_kept=True,
        renew=(_SPECIFICATION, start("toolbox enter")),
    ),
    Sandbox(
        "docker",
        "this container of Docker",
        run_container(
            _GPUS, image="IMAGE", note="in Compose: deploy.resources.reservations.devices, capabilities: [gpu]"
        ),
        files=(".dockerenv",),
        renew=(start("docker run --gpus all IMAGE", _ANEW),),
        names=("docker",),
        rules=(_AGAIN, _LINKS, _CGROUPS),
        join=(_JOIN,),
        unmapped=(
            run_container("--userns=host", "--gpus all", note="if the daemon maps users (userns-remap)"),
            _OPEN_TO_ALL,
        ),
        security=(run_container("--security-opt apparmor=unconfined", "--gpus all"),),
    ),
    Sandbox(
        "podman",
        "this container of Podman",
        start=_podman,
        files=("run/.containerenv",),
        renew=(_SPECIFICATION, start("podman run --device nvidia.com/gpu=all IMAGE", _ANEW)),
        names=("libpod", "overlay-containers"),
        rules=(
            start("podman run --device nvidia.com/gpu=all ...", "passes the devices and their rules in"),
            _on_host("sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml", "if devices were added since"),
        ),
        join=(_JOIN,),
        unmapped=(
            start("podman run --group-add keep-groups --device nvidia.com/gpu=all ...", "needs the runtime crun"),
            _OPEN_TO_ALL,
        ),
        security=(
            start("podman run --security-opt=label=disable --device nvidia.com/gpu=all ..."),
            _on_host("sudo setsebool -P container_use_devices on", "allows it for all containers", Role.ALTERNATIVE),
        ),
    ),
    Sandbox(
        "kubernetes",
        "this pod",
        start=_kubernetes,
        names=("kubelet", "kubepods"),
        renew=(
            run(
                "kubectl delete pod POD",
                "its successor gets the libraries that the host has now",
                kind=Kind.START_CONTAINER,
            ),
        ),
        rules=(
            run("kubectl delete pod POD", "its successor gets its GPUs again", kind=Kind.START_CONTAINER),
            _LINKS,
            _CGROUPS,
        ),
        join=(_JOIN,),
        unmapped=(note("set hostUsers: true in the pod, or supplementalGroups", kind=Kind.START_CONTAINER),),
    ),
    Sandbox(
        "containerd",
        "this container of containerd",
        start=partial(_like_docker, program="nerdctl"),
        names=("cri-containerd", "containerd"),
        renew=(start("nerdctl run --gpus all IMAGE", _ANEW),),
        rules=(_LINKS, _CGROUPS),
        join=(_JOIN,),
    ),
    Sandbox("cri-o", "this container of CRI-O", start=_kubernetes, names=("crio",)),
    Sandbox(
        "lxc",
        "this container of LXC",
        start=_lxc,
        names=("lxc",),
        is_kept=True,
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
        is_kept=True,
        rules=(
            _on_host(
                "sudo systemctl set-property systemd-nspawn@{machine}.service {properties}",
                "if it has another name there: machinectl list",
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
                "write: [Service] {units}, a line each",
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


def of_unit(control_group: str) -> tuple[str, str] | None:
    """Return the sandbox whose unit a control group is, and the name to write in its commands.

    Such as ``/system.slice/ollama.service`` or ``/user.slice/.../snap.firefox.firefox-1.scope``. The service of a
    user's own manager, in which every program of a desktop runs, is no sandbox.
    """
    parts = control_group.split("/")
    for part in parts[1:]:
        if part.startswith("snap.") and part.count(".") > 1:
            return "snap", part.split(".")[1]
    is_unit = len(parts) > 1 and parts[-1].endswith(".service") and not parts[-1].startswith("user@")
    return ("systemd", parts[-1]) if is_unit else None
