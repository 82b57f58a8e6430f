"""Places in which a fix is followed, as facts, and how an action does not fit one; used by :mod:`test_place`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from gpudiag.fix import Action, Kind, Where
from gpudiag.knowledge.managers import BY_NAME
from gpudiag.knowledge.starters import STARTERS
from gpudiag.knowledge.systems import system_of
from gpudiag.model.facts import ContainerFacts, Facts, PythonEnvironment, Unknown


@dataclass(frozen=True)
class Staged:
    """A place: what of the facts it replaces."""

    environment: PythonEnvironment
    root: bool = False
    sudo: bool = True
    runtime: str | None = None
    kubernetes: bool = False
    os: str = "Ubuntu 24.04.1 LTS"
    wsl: bool = False
    slurm: str | None = None
    started_by: tuple[str, ...] = ()

    def can_be(self, facts: Facts) -> bool:
        """Return whether the machine may be such a place: one in a container is in no other runtime's."""
        container = facts.container
        if isinstance(container, Unknown) or container.name is None:
            return True
        return self.kubernetes if container.kubernetes else container.name == self.runtime and not self.kubernetes

    def of(self, facts: Facts) -> Facts:
        """Return ``facts`` of a machine that is such a place."""
        if isinstance(facts.system, Unknown):
            return facts
        command = self.environment.command.replace("EXECUTABLE", facts.system.executable)
        environment = replace(self.environment, command=command)
        known = {
            "os": self.os,
            "wsl": self.wsl,
            "root": self.root,
            "sudo": self.sudo,
            "python_environment": environment,
            "started_by": self.started_by,
        }
        old = facts.container
        container = ContainerFacts(self.runtime, (), self.kubernetes, self.slurm)
        if not isinstance(old, Unknown):
            runtime = {"runtime": self.runtime, "kubernetes": self.kubernetes, "slurm_job": self.slurm}
            evidence = old.evidence or ((f"/.{self.runtime}env",) if self.runtime else ())
            container = replace(old, **runtime, evidence=evidence if self.runtime or self.kubernetes else ())
        variables = facts.environment
        if not isinstance(variables, Unknown) and self.environment.tool == "conda":
            variables = replace(variables, variables={**variables.variables, "CONDA_PREFIX": facts.system.prefix})
        return replace(facts, system=replace(facts.system, **known), container=container, environment=variables)


_VENV = PythonEnvironment("venv", "python", has_pip=True)


def _environment(tool: str, command: str = "python", **facts: Any) -> PythonEnvironment:
    return PythonEnvironment(**{"tool": tool, "command": command, "has_pip": True, **facts})


PLACES = {
    "venv": Staged(_VENV),
    "venv that is not active": Staged(_environment("venv", "EXECUTABLE")),
    "system Python (PEP 668)": Staged(_environment("system", "python3", externally_managed=True, writable=False)),
    "conda": Staged(_environment("conda", tools=("conda",))),
    "uv venv without pip": Staged(_environment("uv venv", has_pip=False, tools=("uv",))),
    "uv project": Staged(_environment("uv", has_pip=False, tools=("uv",), project="/srv/place")),
    "poetry project": Staged(_environment("poetry", has_pip=False, tools=("poetry",), project="/srv/place")),
    "pdm project": Staged(_environment("pdm", project="/srv/place")),
    "pipenv": Staged(_environment("pipenv", project="/srv/place")),
    "pixi": Staged(_environment("pixi", has_pip=False, project="/srv/place")),
    "rye": Staged(_environment("rye", has_pip=False, tools=("uv",), project="/srv/place")),
    "hatch": Staged(_environment("hatch")),
    "micromamba": Staged(_environment("conda", tools=("micromamba",))),
    "Nix": Staged(_environment("Nix", "python3", has_pip=False, writable=False), os="NixOS 24.11"),
    "EasyBuild": Staged(_environment("EasyBuild", writable=False), sudo=False, slurm="4711", os="Rocky Linux 9.4"),
    "Spack": Staged(_environment("Spack", "python3", writable=False), sudo=False, os="SUSE Linux Enterprise 15"),
    "Arch": Staged(_environment("system", externally_managed=True, writable=False), os="Arch Linux"),
    "Void": Staged(_VENV, os="Void Linux"),
    "CentOS 7": Staged(_VENV, os="CentOS Linux 7 (Core)", sudo=False, slurm="4711"),
    "openSUSE": Staged(_VENV, os="openSUSE Tumbleweed"),
    "Alpine": Staged(_environment("system", "python3"), True, False, "docker", os="Alpine Linux v3.20"),
    "RStudio Server": Staged(_VENV, started_by=("RStudio Server",)),
    "RStudio": Staged(_VENV, started_by=("RStudio",)),
    "PyCharm": Staged(_VENV, started_by=("PyCharm",)),
    "VS Code": Staged(_VENV, started_by=("VS Code",)),
    "unit": Staged(_VENV, started_by=("systemd",)),
    "cron": Staged(_VENV, sudo=False, started_by=("cron",)),
    "GitHub Actions": Staged(_environment("system", writable=False), started_by=("GitHub Actions",)),
    "LSF": Staged(_environment("EasyBuild", writable=False), os="Rocky Linux 9.4", started_by=("LSF",)),
    "SageMaker": Staged(_environment("conda", tools=("conda",), notebook="SageMaker"), os="Amazon Linux 2"),
    "pipx": Staged(_environment("pipx", "EXECUTABLE", tools=("pipx",))),
    "Amazon Linux 2": Staged(_VENV, os="Amazon Linux 2"),
    "Docker": Staged(_environment("system", "python3"), root=True, sudo=False, runtime="docker"),
    "rootless podman": Staged(_environment("system", "python3"), root=True, sudo=False, runtime="podman"),
    "Apptainer": Staged(_environment("system", "python3", writable=False), sudo=False, runtime="apptainer"),
    "Kubernetes": Staged(_environment("system", "python3"), True, False, "containerd", kubernetes=True),
    "Slurm": Staged(_environment("conda", tools=("conda",)), slurm="4711", sudo=False, os="Rocky Linux 9.4"),
    "WSL": Staged(_VENV, wsl=True),
    "not root, without sudo": Staged(_environment("venv", writable=False), sudo=False),
    "read-only image": Staged(_environment("system", writable=False), root=True, sudo=False, runtime="docker"),
    "Colab": Staged(_environment("system", notebook="Colab"), root=True, sudo=True),
    "JupyterHub": Staged(_environment("venv", notebook="JupyterHub")),
    "Fedora": Staged(_environment("venv", "python3"), os="Fedora Linux 41"),
}

_AT = r"(?:^|[;&|] *|\w+=\S+ )"
_PIP = re.compile(rf"{_AT}(?:sudo )?(?P<program>(?:\S+ -m )?pip3?) (?P<verb>\w+)(?P<rest>[^;&|]*)")
_OF_SYSTEMS = (
    ("Debian", "apt|apt-get|apt-mark|dpkg|dpkg-reconfigure|ubuntu-drivers|update-initramfs|prime-select|update-grub"),
    ("Fedora/RHEL", "dnf|akmods"),
    ("Fedora/RHEL/RHEL 7/Amazon Linux 2", "grubby"),
    ("RHEL/RHEL 7/Amazon Linux 2", "yum"),
    ("Fedora/RHEL/RHEL 7/Amazon Linux 2/SUSE", "rpm|grub2-mkconfig"),
    ("Fedora/RHEL/RHEL 7/Amazon Linux 2/SUSE/Void", "dracut"),
    ("Arch", "pacman|mkinitcpio"),
    ("SUSE", "zypper"),
)
"""Programs of systems, each with the families that have them."""
_PROGRAMS = [(families.split("/"), re.compile(rf"{_AT}(?:sudo )?(?:{names})\b")) for families, names in _OF_SYSTEMS]


_STARTERS = {starter.name for starter in STARTERS if starter.place}


def sets_one(action: Action) -> bool:
    """Return whether it is known what the action sets, and to what."""
    return bool(action.change or (action.first and "PATH" not in action.first))


def misfits(action: Action, place: Staged, facts: Facts) -> Iterator[str]:
    """Yield why an action cannot be done at the place, or why it is so already."""
    if action.where is Where.SCHEDULER:
        yield from _of_a_start(action.command, place)
    elif action.where is Where.HERE and action.kind is not Kind.EDIT_PROGRAM:
        yield from _of_rights(action.command, place)
        yield from _of_pip(action, place, facts)
        installed = facts.tensorflow
        locations = () if isinstance(installed, Unknown) else installed.distributions
        folder = facts.variables.get("CONDA_PREFIX", "/no conda")
        in_conda = any(distribution.location.startswith(folder) for distribution in locations)
        yield from _of_programs(action.command, place, in_conda=in_conda)
        if _STARTERS.intersection(place.started_by) and re.match("export |unset ", action.command) and sets_one(action):
            yield "no shell starts the program"
        if place.environment.notebook and re.match("export |unset ", action.command) and not action.note:
            yield "a cell has no shell"
        change = action.change or {"": None}
        if all(value is not None and facts.variables.get(name) == value for name, value in change.items()):
            yield "the variable is so already"


def _of_rights(command: str, place: Staged) -> Iterator[str]:
    if re.search(r"\bsudo\b", command):
        if place.root:
            yield "sudo for root"
        elif not place.sudo or place.slurm or "LSF" in place.started_by:
            yield "sudo is not there"


def _of_programs(command: str, place: Staged, *, in_conda: bool) -> Iterator[str]:
    env = place.environment
    if re.search(rf"{_AT}conda ", command) and "conda" not in env.tools and not in_conda:
        yield "conda is not there"
    if re.search(rf"{_AT}conda install", command) and env.tool != "conda" and not in_conda:
        yield "conda install outside of conda"
    if re.search(rf"{_AT}python ", command) and not command.startswith("ssh ") and env.command != "python":
        yield "python is another or none"
    system = system_of(place.os)
    if system is not None and not system.has_cache and re.search(rf"{_AT}(?:sudo )?ldconfig\b", command):
        yield "the loader has no cache"
    if system is not None and system.name != "Debian" and re.search(r"\bnvidia-(?:driver|dkms)-\d+\b", command):
        yield "the package is Debian's or Ubuntu's"
    for families, programs in _PROGRAMS:
        if programs.search(command) and getattr(system_of(place.os), "name", "") not in families:
            yield f"the command is of {families[0]}"
    manager = BY_NAME.get(env.tool)
    if manager and manager.is_fixed and re.search(r"--user|--break-system-packages", command):
        yield "nobody adds packages to this environment"
    if place.wsl and re.search("nvidia-driver-|sudo reboot", command) and "purge" not in command:
        yield "the driver is Windows's"


_STARTS = re.compile(r"docker run|podman run|nerdctl|apptainer|singularity|lxc|resources|env|image|volumes")
_OF_RUNTIME = {"docker": "docker run", "podman": "podman run", "apptainer": "apptainer"}


def _of_a_start(command: str, place: Staged) -> Iterator[str]:
    starts = _STARTS.match(command)
    if starts is None:
        return
    if place.kubernetes:
        if starts[0] in _OF_RUNTIME.values():
            yield "another runtime's command"
    elif place.runtime:
        if starts[0] != _OF_RUNTIME[place.runtime]:
            yield "another runtime's command"
    elif not re.search(r"\S+/\S+:\S+", command):
        yield "a container's start outside of one"


def _of_pip(action: Action, place: Staged, facts: Facts) -> Iterator[str]:
    env, executable = place.environment, facts.system.executable  # type: ignore[union-attr]
    for pip in _PIP.finditer(action.command):
        if "/" in pip["program"] and not pip["program"].startswith(executable):
            continue  # of an environment that is made, or of another one
        if pip["verb"] in ("install", "uninstall"):
            if env.externally_managed and "--break-system-packages" not in pip["rest"]:
                yield "pip refuses (PEP 668)"
            if not env.writable and "--user" not in pip["rest"] and pip["verb"] == "install":
                yield "the folder of packages cannot be written"
            if env.project and not ("reinstall" in pip["rest"] or ("-m pip" in pip["program"] and env.has_pip)):
                yield "the lock file's tool undoes it"
            if env.tool == "pipx":
                yield "pip of another environment than pipx's"
        before = action.command[: pip.start("program")]
        if not env.has_pip and "ensurepip" not in before and "uv" not in before and "python3-pip" not in before:
            yield "pip is not there"
        own = facts.system.python_environment.command  # type: ignore[union-attr]
        if env.command != "python" and not pip["program"].startswith(f"{own} "):
            yield "pip of another Python"
