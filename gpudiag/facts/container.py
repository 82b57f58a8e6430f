"""The family ``container``: signs of a container, of Kubernetes and of Slurm, and their limits."""

from __future__ import annotations

import configparser
import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from gpudiag.facts import printable, read_text
from gpudiag.facts.limits import control_group, limits
from gpudiag.knowledge.sandboxes import SANDBOXES, of_unit
from gpudiag.model.facts import ContainerFacts

_OF_SYSTEMD = "run/systemd/container"
"""The file in which systemd writes the kind of its container, such as ``lxc``."""
_IMAGE_VARIABLES = ("APPTAINER_CONTAINER", "SINGULARITY_CONTAINER")
_DAC_OVERRIDE = 1
"""The number of the capability CAP_DAC_OVERRIDE."""
_SECRETS = ("run/secrets/kubernetes.io", "var/run/secrets/kubernetes.io")
"""The folder of a pod's service account; not every image has the link from /var/run to /run."""
_NAMES = {name: sandbox.name for sandbox in SANDBOXES for name in sandbox.names}
_NAME = re.compile(rf"[/:-]({'|'.join(_NAMES)})\b")
_NAMED_IN = {
    "proc/1/cgroup": ("",),
    # Runtimes mount these three; other mounts of a runtime are also on its host, which is not a container.
    "proc/self/mountinfo": (" /etc/hostname ", " /etc/hosts ", " /etc/resolv.conf "),
}


def gather(root: Path = Path("/"), environ: Mapping[str, str] = os.environ) -> ContainerFacts:
    """Return the signs found in files under ``root`` and in ``environ``."""
    marks = list(_marks(root, environ))
    group = control_group(root, "devices")
    sandbox, name = _sandbox(root, group or "")
    application, devices = _flatpak(root)
    in_force_limits = limits(root)
    in_force = {limit.name: limit.value for limit in in_force_limits}
    return ContainerFacts(
        runtime=marks[0][0] if marks else None,
        evidence=tuple(evidence for _, evidence in marks),
        kubernetes="KUBERNETES_SERVICE_HOST" in environ
        or any((root / folder).exists() for folder in _SECRETS)
        or any(runtime == "kubernetes" for runtime, _ in marks),
        slurm_job=printable(environ["SLURM_JOB_ID"]) if "SLURM_JOB_ID" in environ else None,
        job_gpus=_job_gpus(root, environ),
        shm_bytes=_shm_bytes(root),
        memlock_bytes=in_force.get("Max locked memory"),
        address_space_bytes=in_force.get("Max address space"),
        infiniband=tuple(
            printable(f"/dev/infiniband/{file.name}") for file in sorted(root.glob("dev/infiniband/uverbs*"))
        ),
        image=_image(root, environ) if marks else None,
        sandbox=sandbox,
        sandbox_name=printable(name or application),
        flatpak_devices=devices,
        control_group=printable(group) if group else None,
        user_namespace=_user_namespace(root),
        overrides_permissions=_overrides_permissions(root),
        has_filter=_has_filter(root),
        limits=in_force_limits,
    )


def _job_gpus(root: Path, environ: Mapping[str, str]) -> tuple[int, ...] | None:
    """Return the GPUs that Torque gave a job: in the file that PBS_GPUFILE names, a line ``node7-gpu1`` is one.

    Of several nodes, those of the first one in the file count, on which the job's script runs.
    """
    name = environ.get("PBS_GPUFILE", "")
    lines = (line.strip().rpartition("-gpu") for line in _lines(root / name.lstrip("/"))) if name else ()
    given = [(node, int(number)) for node, _, number in lines if number.isdecimal()]
    return tuple(sorted({number for node, number in given if node == given[0][0]})) if given else None


def _sandbox(root: Path, group: str) -> tuple[str | None, str]:
    """Return what confines this process besides a container, with the name of its unit or snap."""
    if _is_gvisor(root):
        return "gvisor", ""
    if _is_chroot(root):
        return "chroot", ""
    return of_unit(group) or (None, "")


def _flatpak(root: Path) -> tuple[str, str | None]:
    """Return the name of the Flatpak that this is, and which devices of the host it passes in; "" and None if none."""
    known = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        known.read_string(read_text(root / ".flatpak-info"))
    except configparser.Error:
        return "", None
    if not known.sections():
        return "", None
    return known.get("Application", "name", fallback=""), printable(known.get("Context", "devices", fallback=""))


def _is_gvisor(root: Path) -> bool:
    """Return whether the kernel is gVisor's: it has always called itself a Linux 4.4.0 of this date."""
    return read_text(root / "proc/version").startswith("Linux version 4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016")


def _is_chroot(root: Path) -> bool:
    """Return whether ``/`` is not the root of a mount, or, if this user may look, not that of the first process."""
    mounts = read_text(root / "proc/self/mountinfo")
    if mounts and not re.search(r"^\d+ \d+ \S+ \S+ / ", mounts, re.MULTILINE):
        return True
    if root != Path("/"):
        return False
    with suppress(OSError):
        first, own = Path("/proc/1/root").stat(), Path("/").stat()
        return (first.st_dev, first.st_ino) != (own.st_dev, own.st_ino)
    return False


def _user_namespace(root: Path) -> str | None:
    """Return the lines of ``uid_map``, ``0 1000 1; 1 100000 65536``; None if every user has its own number."""
    lines = [" ".join(line.split()) for line in read_text(root / "proc/self/uid_map").splitlines()]
    return None if not lines or lines == ["0 0 4294967295"] else "; ".join(lines)


def _has_filter(root: Path) -> bool | None:
    """Return whether seccomp filters the system calls of this process (mode 2 of ``proc_pid_status(5)``)."""
    lines = read_text(root / "proc/self/status").splitlines()
    return next((line.split()[1:] == ["2"] for line in lines if line.startswith("Seccomp:")), None)


def _overrides_permissions(root: Path) -> bool | None:
    """Return bit 1 of the effective capabilities, ``CapEff:\t000001fffeffffff``."""
    found = re.search(r"^CapEff:\s*([0-9a-f]+)", read_text(root / "proc/self/status"), re.MULTILINE)
    return bool(int(found[1], 16) >> _DAC_OVERRIDE & 1) if found else None


def _image(root: Path, environ: Mapping[str, str]) -> str | None:
    """Return the name that Apptainer or Podman gives the image, or a digest of the layers below ``/``.

    A container cannot ask Docker or containerd for its image. Its root is an overlay that names the folders of the
    layers, which are the same for all containers of an image on one host (``lowerdir=LAYER:LAYER:...``). Docker puts a
    layer of the container itself first.
    """
    for variable in _IMAGE_VARIABLES:
        if environ.get(variable):
            return printable(environ[variable])
    for line in _lines(root / "run/.containerenv"):
        if named := re.fullmatch(r'image="(.+)"', line):
            return printable(named[1])
    for line in _lines(root / "proc/self/mountinfo"):
        layers = re.search(r"^\d+ \d+ \S+ \S+ / .*[ ,]lowerdir=([^, ]+)", line)
        if layers:
            own, _, image = layers[1].partition(":")
            folders = image if "/overlay2/l/" in own else layers[1]
            return f"0x{hashlib.sha256(folders.encode()).hexdigest()[:16]}"
    return None


def _marks(root: Path, environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield (runtime, evidence), the most reliable sign first."""
    containers = [sandbox for sandbox in SANDBOXES if sandbox.is_container]
    for sandbox in containers:
        for variable in sandbox.variables:
            if variable in environ:
                yield sandbox.name, variable
    if environ.get("container"):  # set by systemd-nspawn, podman and LXC for the container's first process
        value = printable(environ["container"])
        yield value, f"container={value}"
    for sandbox in containers:
        for file in sandbox.files:
            if os.path.lexists(root / file):
                yield sandbox.name, f"/{file}"
        if sandbox.init and read_text(root / "proc/1/comm").strip() == sandbox.init:
            yield sandbox.name, f"{sandbox.init} in /proc/1/comm"
    for line in _lines(root / _OF_SYSTEMD)[:1]:
        if line not in ("", "wsl"):  # which is the whole machine to its users
            yield printable(line), f"{line} in /{_OF_SYSTEMD}"
    for file, parts in _NAMED_IN.items():
        lines = (line for line in _lines(root / file) if any(part in line for part in parts))
        if found := next(filter(None, map(_NAME.search, lines)), None):
            yield _NAMES[found[1]], f"{found[1]} in /{file}"


def _shm_bytes(root: Path) -> int | None:
    """Return the size of the last mount in a line like ``25 24 0:23 / /dev/shm rw - tmpfs shm rw,size=65536k``."""
    mounts = [line for line in _lines(root / "proc/self/mountinfo") if " /dev/shm " in line]
    size = re.search(r"\bsize=(\d+)k\b", mounts[-1]) if mounts else None
    return int(size[1]) << 10 if size else None


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(errors="replace").splitlines()
    except OSError:
        return []
