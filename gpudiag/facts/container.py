"""The family ``container``: marks of a container, of Kubernetes and of Slurm."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from gpudiag.hostfacts import ContainerFacts

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
    "kubepods": "kubernetes",
    "libpod": "podman",
    "lxc": "lxc",
}
_NAME = re.compile(rf"[/:-]({'|'.join(_NAMES)})\b")
_NAMED_IN = {
    "proc/1/cgroup": re.compile(""),
    # Runtimes mount these three; other mounts of a runtime are on its host too, which is no container.
    "proc/self/mountinfo": re.compile(r" /etc/(hostname|hosts|resolv\.conf) "),
}


def gather(root: Path = Path("/"), environ: Mapping[str, str] = os.environ) -> ContainerFacts:
    """Return the marks found in files under ``root`` and in ``environ``."""
    marks = list(_marks(root, environ))
    return ContainerFacts(
        runtime=marks[0][0] if marks else None,
        evidence=tuple(evidence for _, evidence in marks),
        kubernetes="KUBERNETES_SERVICE_HOST" in environ or (root / "run/secrets/kubernetes.io").exists(),
        slurm_job=environ.get("SLURM_JOB_ID"),
    )


def _marks(root: Path, environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield (runtime, evidence), the surest mark first."""
    for variable, runtime in _VARIABLES.items():
        if variable in environ:
            yield runtime, variable
    if environ.get("container"):  # set by systemd-nspawn, podman and LXC for the container's first process
        yield environ["container"], f"container={environ['container']}"
    for file, runtime in _FILES.items():
        if (root / file).exists():
            yield runtime, f"/{file}"
    for file, relevant in _NAMED_IN.items():
        found = next(filter(None, map(_NAME.search, filter(relevant.search, _lines(root / file)))), None)
        if found:
            yield _NAMES[found[1]], f"{found[1]} in /{file}"


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(errors="replace").splitlines()
    except OSError:
        return []
