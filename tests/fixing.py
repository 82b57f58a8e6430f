"""Follows the lines of a fix on a machine of the corpus, as its user would, as far as that can be done on it.

A line that changes variables, or moves or removes files of the run, is given to a shell; one that starts a program with
other variables changes those of the program that wrote the log. What pip does is done to the folders that stand for
site-packages, and to the simulated machine's libraries: only what a package holds that the line names is put back. All
other lines are of a kind that only the real machine has; :data:`KINDS` names them.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from conftest import Gpudiag, modules
from corpus import Item
from gpudiag.probes.host.libraries import PACKAGES
from gpudiag.simulator import library_directory

KINDS = {
    "a sentence": r"#",
    "a package of the system": r"(?:sudo )?(?:apt|apt-get|dnf|pacman|zypper|yay|ubuntu-drivers|conda)\b|"
    r"sudo nvidia-uninstall\b",
    "the kernel, its modules and files": r"(?:sudo )?(?:modprobe|rmmod|nvidia-modprobe|dkms|mokutil|sysctl|"
    r"prime-select|update-initramfs|dracut|ldconfig|cat /proc|ls -l|dmesg|echo)\b",
    "the whole machine": r"(?:sudo )?(?:reboot|shutdown|wsl(?:\.exe)?)\b",
    "a service": r"(?:sudo )?(?:systemctl|journalctl|loginctl|sh -c)\b",
    "the driver's tools": r"(?:sudo )?(?:nvidia-smi|nvidia-ctk|nvidia-cuda-mps-control)\b",
    "a user": r"(?:sudo )?(?:usermod|newgrp)\b|ulimit\b|kill\b|ps\b",
    "a start of a container, a pod or a job": r"(?:docker|podman|nerdctl|apptainer|singularity|lxc|kubectl|srun|sbatch|"
    r"salloc|mpirun|horovodrun|resources:|runtimeClassName:|--gres|#SBATCH)",
    "a look at the machine": r"(?:sudo )?lspci\b|(?:\S*python\S* -m )?pip check\b",
    "a line of a Dockerfile": r"(?:RUN|ENV)\b",
    "the mode of a device file": r"(?:sudo )?chmod\b",
    "another run of a program": r"python\b|pytest\b|gpudiag\b|\S+/bin/python\b|grep\b|for \w+ in /",
    "code of the program": r"(?:import|from|for|if|with|@|tf\.|os\.|tune\.|strategy|gpus|options|remove)",
}
"""What a test cannot do, by the beginning of the line."""
_ALTERNATIVE = re.compile(r"\s#\s*(?:or\b|until then|without other packages|that pip)|; for good$")
_PIP = re.compile(r"(?:\S*python\S* -m )?pip (?P<what>install|uninstall) (?P<words>.+)")
_SET = re.compile(r"(?:export|unset) ")
_OTHER_VARIABLES = re.compile(r"(?P<set>[A-Z_]+=\S+) python program\.py")
_FILES = re.compile(r"(?:mv|rm) /")
_OF_A_MACHINE = re.compile(r"/\S+/gpudiag-sim-\w+/lib/(?P<name>\S+)")
_COMPUTE_MODE = re.compile(r"(?:sudo )?nvidia-smi -i (?P<gpu>\d+) -c 0\b")


@dataclass
class Followed:
    """What was done, and what was not."""

    item: Item
    """The machine after the fix."""
    done: list[str] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)
    """Each line that was not followed, to its kind."""
    unset: set[str] = field(default_factory=set)
    """Variables that are to be unset."""


def kind(line: str) -> str:
    """Return what a line of a fix is that cannot be followed here, one of :data:`KINDS`; "" if it can be followed.

    Raises :class:`ValueError` for a line of no kind that is known.
    """
    command = _command(line)
    followed = (_SET, _OTHER_VARIABLES, _FILES, _COMPUTE_MODE)
    if any(pattern.match(command) for pattern in followed) or _is_pip(command):
        return ""
    for name, pattern in KINDS.items():
        if re.match(pattern, line if line.startswith("#") else command):
            return name
    raise ValueError(f"say in KINDS what it is: {line}")


def _command(line: str) -> str:
    return line.partition("  #")[0].strip()


def _is_pip(command: str) -> bool:
    return all(_PIP.fullmatch(part.strip()) for part in re.split("&&|;", command))


def follow(fix: Iterable[str], item: Item, gpudiag: Gpudiag) -> Followed:
    """Follow the lines of ``fix`` in their order; an alternative to another line is left.

    Raises :class:`ValueError` for a line of no kind that is known.
    """
    followed = Followed(item)
    for line in fix:
        if not line.startswith("#") and _ALTERNATIVE.search(line) and followed.done:
            followed.left[line] = "an alternative"
        elif left := kind(line):
            followed.left[line] = left
        else:
            _do(_command(line), followed, gpudiag)
            followed.done.append(line)
    _run_again(item, followed, gpudiag)
    return followed


def _do(command: str, followed: Followed, gpudiag: Gpudiag) -> None:
    if found := _COMPUTE_MODE.match(command):
        followed.item = replace(followed.item, machine=_with_default_mode(followed.item, int(found["gpu"])))
    elif found := _OTHER_VARIABLES.match(command):
        _set(f"export {found['set']}", followed, gpudiag)
    elif _SET.match(command):
        _set(command, followed, gpudiag)
    elif _FILES.match(command):
        words = [_OF_A_MACHINE.sub(rf"{gpudiag.libraries}/\g<name>", word) for word in shlex.split(command)]
        assert all(Path(word).is_relative_to(gpudiag.folder) for word in words[1:]), command
        subprocess.run(words, cwd=gpudiag.folder, check=True, timeout=60)
    else:
        for part in re.split("&&|;", command):
            _pip(part.strip(), followed, gpudiag)


def _run_again(before: Item, followed: Followed, gpudiag: Gpudiag) -> None:
    """Run the program that wrote the log once more, with the variables as they are now."""
    if gpudiag.program is None:
        return
    machine, source, command, variables = gpudiag.program
    old, new = before.variables, followed.item.variables
    changed = {name: value for name, value in new.items() if old.get(name) != value}
    removed = (old.keys() - new.keys()) | followed.unset
    kept = {name: value for name, value in variables.items() if name not in removed}
    gpudiag.run_program(machine, source, *command, **{**kept, **changed})


def _set(command: str, followed: Followed, gpudiag: Gpudiag) -> None:
    """Let a shell change the variables; it must take the line as it is."""
    if command.startswith("unset "):
        followed.unset.update(shlex.split(command)[1:])
    before = {**gpudiag.environment, **followed.item.variables}
    script = f"{command}\nexec env -0"
    done = subprocess.run(["bash", "-ec", script], env=before, capture_output=True, text=True, check=True, timeout=60)
    after = dict(entry.partition("=")[::2] for entry in done.stdout.split("\0") if entry)
    changed = {name: value for name, value in after.items() if before.get(name) != value and name not in ("_", "SHLVL")}
    first = str(gpudiag.folder / followed.item.first)
    if followed.item.first and first not in after.get("LD_LIBRARY_PATH", "").split(":"):
        # The path of the simulated machine is made again with it.
        followed.item = replace(followed.item, first="")
        changed.pop("LD_LIBRARY_PATH", None)
    kept = {name: value for name, value in followed.item.variables.items() if name in after}
    for name in before.keys() - after.keys():
        gpudiag.environment.pop(name, None)
    followed.item = replace(followed.item, variables={**kept, **changed})


def _pip(command: str, followed: Followed, gpudiag: Gpudiag) -> None:
    found = _PIP.fullmatch(command)
    assert found is not None
    names = [word for word in shlex.split(found["words"]) if not word.startswith("-")]
    if found["what"] == "uninstall":
        for name in names:
            _uninstalled(name, gpudiag)
        return
    packages = {re.split(r"[=<>~!\[]", name)[0] for name in names}
    everything = any("[and-cuda]" in name for name in names)
    wanted = [stem for stem, package in PACKAGES.items() if everything or package in packages]
    if gpudiag.libraries is not None:
        for library in library_directory().iterdir():
            if library.name.partition(".")[0] in wanted:
                (gpudiag.libraries / library.name).unlink(missing_ok=True)
                (gpudiag.libraries / library.name).symlink_to(library.resolve())
    faults = tuple(fault for fault in followed.item.faults if not _serves(wanted, fault))
    followed.item = replace(followed.item, faults=faults)
    if packages & _of_the_path(gpudiag) or any(package.startswith(("tensorflow", "nvidia")) for package in packages):
        gpudiag.path[:] = modules()


def _of_the_path(gpudiag: Gpudiag) -> set[str]:
    """Return the names of the distributions that staging has put into folders of the run."""
    sites = (Path(entry) for entry in gpudiag.path if Path(entry).is_relative_to(gpudiag.folder))
    return {
        folder.name.partition("-")[0].replace("_", "-").lower() for site in sites for folder in site.glob("*.dist-info")
    }


def _serves(wanted: list[str], fault: str) -> bool:
    name, _, value = fault.partition("=")
    if name == "cudnn_version":
        return "libcudnn" in wanted
    return name == "library_missing" and f"lib{value.removeprefix('lib').partition('.')[0]}" in wanted


def _uninstalled(name: str, gpudiag: Gpudiag) -> None:
    """Remove the first distribution of this name that is in a folder of the run, and what is TensorFlow's of it."""
    for site in (Path(entry) for entry in gpudiag.path if Path(entry).is_relative_to(gpudiag.folder)):
        for metadata in site.glob(f"{name.replace('-', '_')}-*.dist-info"):
            shutil.rmtree(metadata) if not metadata.is_symlink() else metadata.unlink()
            if name == "tensorflow-directml-plugin":
                shutil.rmtree(site / "tensorflow-plugins", ignore_errors=True)
            elif name.startswith("tensorflow") and (site / "tensorflow").is_dir():
                shutil.rmtree(site / "tensorflow")
            return


def _with_default_mode(item: Item, gpu: int) -> str:
    """Return the machine with GPU ``gpu`` in compute mode default."""
    head, *gpus = (item.machine or "").split("[[gpu]]")
    gpus[gpu] = re.sub(r"compute_mode = .*", "", gpus[gpu])
    return "[[gpu]]".join((head, *gpus))
