"""The family ``container``: signs of a container, of Kubernetes and of Slurm, and their limits."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from gpudiag.facts import printable
from gpudiag.model.facts import ContainerFacts

_FILES = {
    ".dockerenv": "docker",
    "run/.containerenv": "podman",
    ".singularity.d": "singularity",
}
_VARIABLES = {
    "APPTAINER_CONTAINER": "apptainer",
    "SINGULARITY_CONTAINER": "singularity",
}
_NAMES = {
    "cri-containerd": "containerd",
    "containerd": "containerd",
    "crio": "cri-o",
    "docker": "docker",
    "kubelet": "kubernetes",
    "kubepods": "kubernetes",
    "libpod": "podman",
    "lxc": "lxc",
    "overlay-containers": "podman",
}
_OF_SYSTEMD = "run/systemd/container"
"""The file in which systemd writes the kind of its container, such as ``lxc``."""
_SECRETS = ("run/secrets/kubernetes.io", "var/run/secrets/kubernetes.io")
"""The folder of a pod's service account; not every image has the link from /var/run to /run."""
_NAME = re.compile(rf"[/:-]({'|'.join(_NAMES)})\b")
_NAMED_IN = {
    "proc/1/cgroup": re.compile(""),
    # Runtimes mount these three; other mounts of a runtime are also on its host, which is not a container.
    "proc/self/mountinfo": re.compile(r" /etc/(hostname|hosts|resolv\.conf) "),
}


def gather(root: Path = Path("/"), environ: Mapping[str, str] = os.environ) -> ContainerFacts:
    """Return the signs found in files under ``root`` and in ``environ``."""
    marks = list(_marks(root, environ))
    return ContainerFacts(
        runtime=marks[0][0] if marks else None,
        evidence=tuple(evidence for _, evidence in marks),
        kubernetes="KUBERNETES_SERVICE_HOST" in environ
        or any((root / folder).exists() for folder in _SECRETS)
        or any(runtime == "kubernetes" for runtime, _ in marks),
        slurm_job=printable(environ["SLURM_JOB_ID"]) if "SLURM_JOB_ID" in environ else None,
        shm_bytes=_shm_bytes(root),
        memlock_bytes=_limit_bytes(root, "Max locked memory"),
        address_space_bytes=_limit_bytes(root, "Max address space"),
        infiniband=tuple(
            printable(f"/dev/infiniband/{file.name}") for file in sorted(root.glob("dev/infiniband/uverbs*"))
        ),
        image=_image(root, environ) if marks else None,
    )


def _image(root: Path, environ: Mapping[str, str]) -> str | None:
    """Return the name that Apptainer or Podman gives the image, or a digest of the layers below ``/``.

    A container cannot ask Docker or containerd for its image. Its root is an overlay that names the folders of the
    layers, which are the same for all containers of an image on one host (``lowerdir=LAYER:LAYER:...``). Docker puts a
    layer of the container itself first.
    """
    for variable in _VARIABLES:
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
    for variable, runtime in _VARIABLES.items():
        if variable in environ:
            yield runtime, variable
    if environ.get("container"):  # set by systemd-nspawn, podman and LXC for the container's first process
        value = printable(environ["container"])
        yield value, f"container={value}"
    for file, runtime in _FILES.items():
        if (root / file).exists():
            yield runtime, f"/{file}"
    for line in _lines(root / _OF_SYSTEMD)[:1]:
        if line not in ("", "wsl"):  # which is the whole machine to its users
            yield printable(line), f"{line} in /{_OF_SYSTEMD}"
    for file, relevant in _NAMED_IN.items():
        found = next(filter(None, map(_NAME.search, filter(relevant.search, _lines(root / file)))), None)
        if found:
            yield _NAMES[found[1]], f"{found[1]} in /{file}"


def _shm_bytes(root: Path) -> int | None:
    """Return the size of the last mount in a line like ``25 24 0:23 / /dev/shm rw - tmpfs shm rw,size=65536k``."""
    mounts = [line for line in _lines(root / "proc/self/mountinfo") if " /dev/shm " in line]
    size = re.search(r"\bsize=(\d+)k\b", mounts[-1]) if mounts else None
    return int(size[1]) << 10 if size else None


def _limit_bytes(root: Path, name: str) -> int | None:
    """Return the soft limit ``name`` from a line like ``Max locked memory 65536 65536 bytes``; None: unlimited."""
    for line in _lines(root / "proc/self/limits"):
        if line.startswith(name) and (found := re.match(r"\s+(\d+)", line[len(name) :])):
            return int(found[1])
    return None


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(errors="replace").splitlines()
    except OSError:
        return []
