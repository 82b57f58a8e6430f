"""Where the actions of a fix are done: each is given in the words of this machine, or left out if it is so already.

Causes and messages write an action as it is on an ordinary Linux machine: ``sudo``, ``pip``, ``docker run --gpus all``.
:func:`fitted` renders it for the place that the facts describe: the tool that fills the environment of Python, the
runtime of the container, the rights of the user, the distribution of the system, a notebook.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import PurePath
from shlex import quote
from typing import NamedTuple

from gpudiag import fix
from gpudiag.fix import Action, Kind, Role, Where, distinct
from gpudiag.knowledge import managers, starters
from gpudiag.knowledge.managers import CONDAS, Manager
from gpudiag.knowledge.sandboxes import BY_NAME
from gpudiag.knowledge.starters import Starter
from gpudiag.knowledge.systems import MANAGERS, SYSTEMS, WINDOWS, System, system_of
from gpudiag.model.facts import Facts, PythonEnvironment, Unknown

_STEP = re.compile(r"""(?s)(?:'[^']*'?|"(?:[^"\\]|\\.)*"?|\$\([^()]*\)?|\\.|(?<!&)&(?!&)|[^'"\\;|&])+""")
"""One of the simple commands of a line of a shell; between them are ``&&``, ``||``, ``;`` and ``|``."""
_WORDS = re.compile(r"""(?:'[^']*'?|"[^"]*"?|\$\([^()]*\)?|[^\s'"])+""")
_AGAIN = {"--force-reinstall", "--upgrade", "--ignore-installed"}
_OF_THE_LOADER = {"LD_LIBRARY_PATH", "LD_PRELOAD", "PATH"}
_WITH_DEFINITION = ("apptainer", "singularity")
_OF_DOCKER_ALONE = ("Compose", "--gpus", "--ipc", "--runtime", "toolkit", "Docker", "in a container")
_RUNS = ("if it runs in ", "if the program runs in ", "in ")
_ELSEWHERE = ("a container", "a pod", "Kubernetes", "Slurm", "conda", "WSL", "a notebook")
"""How a sentence begins that is about one place alone, and the places."""


@dataclass(frozen=True)
class Place:
    """What an action has to fit; a value is None or empty if it is not known."""

    environment: PythonEnvironment | None = None
    executable: str = ""
    prefix: str = ""
    root: bool | None = None
    sudo: bool | None = None
    node: str = ""
    started_by: tuple[Starter, ...] = ()
    """What started this process besides a shell, the innermost first."""
    unit: str = ""
    """The unit of systemd that this process is in."""
    system: System | None = None
    """The system's distribution; None if it is not known."""
    wsl: bool = False
    container: str | None = None
    """The runtime of the container; "" outside of one."""
    has_gpus: bool = False
    """True in a container that was given the driver's library and all device files of a GPU."""
    groups: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    has_conda: bool = True
    """True if a program of conda is there, or the active environment, which has TensorFlow, is one of conda's."""
    in_conda: bool = False
    """True if TensorFlow is in an environment of conda."""
    is_vgpu: bool = False
    """True in a virtual machine that was given a part of a GPU (vGPU): its driver is not that of the whole card."""
    installed: Mapping[str, str] = field(default_factory=dict)
    """The versions of installed packages, by name."""

    @classmethod
    def of(cls, facts: Facts) -> Place:
        system, container, nodes = facts.system, facts.container, facts.device_nodes
        if isinstance(system, Unknown):
            return cls()
        runtime = None if isinstance(container, Unknown) else container.name or ""
        if not isinstance(container, Unknown) and container.kubernetes:
            runtime = "kubernetes"
        library = None if isinstance(facts.driver, Unknown) else facts.driver.libcuda_path
        environment, started_by = system.python_environment, _started_by(facts, system.started_by)
        in_conda = environment is not None and (environment.tool == "conda" or _is_in(facts, "CONDA_PREFIX"))
        return cls(
            environment=environment,
            has_conda=environment is None or in_conda or not set(CONDAS).isdisjoint(environment.tools),
            in_conda=in_conda,
            executable=system.executable,
            prefix=system.prefix,
            root=system.root,
            sudo=system.sudo,
            node=next(
                (facts.variables[row.node] for row in started_by if row.node in facts.variables),
                system.hostname.partition(".")[0],
            ),
            started_by=started_by,
            unit="" if isinstance(container, Unknown) else container.sandbox_name,
            system=system_of(system.os),
            wsl=system.wsl,
            container=runtime,
            has_gpus=bool(runtime and library and facts.given_a_gpu and not _lacks_devices(facts)),
            groups=() if isinstance(nodes, Unknown) else nodes.groups,
            variables=facts.variables,
            is_vgpu=any(device.state.virtualization == "vgpu" for device in facts.nvml_devices if device.state),
            installed=_installed(facts),
        )

    @classmethod
    def of_log(cls, text: str, *, container: str | None) -> Place:
        """Return where a log was written, as far as its text shows it; ``container`` is the runtime, if known."""
        rows = managers.MANAGERS
        manager = next((row for row in rows if any(part in text for part in row.folders)), None)
        notebook = next((row for row in starters.NOTEBOOKS if any(word in text for word in row.words)), None)
        started_by = tuple(row for row in starters.STARTERS if any(word in text for word in row.words))
        environment = None
        if manager or notebook:
            tool = manager.name if manager else "system"
            environment = PythonEnvironment(
                tool,
                "python",
                has_pip=True,
                writable=not (manager and manager.is_fixed),
                notebook=notebook.name if notebook else "",
            )
        is_job = any(row.elsewhere for row in started_by)
        return cls(
            environment, in_conda=True, root=False if is_job else None, started_by=started_by, container=container
        )

    @property
    def manager(self) -> Manager | None:
        """What fills the environment, if that is more than pip."""
        return managers.BY_NAME.get(self.environment.tool) if self.environment else None

    @property
    def starter(self) -> Starter | None:
        """What decides which variables the program gets, if that is not a shell or a job's script."""
        return next((starter for starter in self.started_by if starter.place), None)

    @property
    def job(self) -> Starter | None:
        """The scheduler whose job this process is in."""
        return next((starter for starter in self.started_by if starter.elsewhere), None)

    @property
    def may_be_root(self) -> bool:
        """False if this user surely cannot do what needs root: who runs a job of a cluster does not administer it."""
        return self.root is not False or not (self.sudo is False or self.job)

    @property
    def way_to_a_gpu(self) -> str:
        """How the service of a notebook gives another machine, with a GPU; "" if this is none."""
        notebook = self.environment.notebook if self.environment else ""
        return next((row.another for row in starters.NOTEBOOKS if row.name == notebook), "")


def _lacks_devices(facts: Facts) -> bool:
    """Return whether a device file is missing that a start with GPUs brings: some are passed in by hand."""
    nodes = facts.device_nodes
    paths = set() if isinstance(nodes, Unknown) else {node.path for node in nodes.nodes}
    return bool(paths) and "/dev/dxg" not in paths and not paths >= {"/dev/nvidiactl", "/dev/nvidia-uvm"}


def _is_in(facts: Facts, variable: str) -> bool:
    """Return whether TensorFlow is below the folder that the variable names."""
    folder, known = facts.variables.get(variable), facts.tensorflow
    if not folder or isinstance(known, Unknown):
        return False
    return any(distribution.location.startswith(folder) for distribution in known.distributions)


def _started_by(facts: Facts, names: tuple[str, ...]) -> tuple[Starter, ...]:
    """Return what started the process; reports of older versions name Slurm alone, among the facts of the container."""
    in_slurm = not isinstance(facts.container, Unknown) and facts.container.slurm_job is not None
    of_slurm = ("Slurm",) if in_slurm and "Slurm" not in names else ()
    return tuple(starters.BY_NAME[name] for name in (*of_slurm, *names) if name in starters.BY_NAME)


def _installed(facts: Facts) -> dict[str, str]:
    known = facts.tensorflow
    if isinstance(known, Unknown):
        return {}
    packages = (*known.distributions, *known.companions, *known.frameworks, *known.plugin_distributions)
    return {package.name.replace("_", "-").lower(): package.version for package in packages}


class _UnfitError(Exception):
    """A command that this place does not have, or that would change nothing here."""


def fitted_all(actions: Iterable[Action], place: Place) -> tuple[Action, ...]:
    """Return the actions as they are done at ``place``.

    What is so already, or cannot be done there, is left out, unless nothing else would be left.
    """
    general = tuple(actions)
    pairs = [(new, action) for action in general if (new := fitted(action, place)) is not None]
    if not place.may_be_root:
        pairs = sorted(pairs, key=lambda pair: (_is_asked(pair[1], place), pair[0].role is Role.NOTE))
        if pairs and pairs[0][0].role is Role.ALTERNATIVE:
            pairs[0] = (pairs[0][0].replaced(role=Role.FIX), pairs[0][1])
    kept = [new for new, _ in pairs]
    of_node = {action.kind for _, action in pairs if _is_of_this_node(action, place)}
    if place.job and of_node:
        command = place.job.elsewhere.format(node=place.node or "NODE")
        fault = "another node has no such fault; report this one to its administrators"
        kept.insert(0, fix.start(command, "takes another node" if of_node == {Kind.ASK_USER} else fault))
    return distinct(kept) or general


def _is_of_this_node(action: Action, place: Place) -> bool:
    """Return whether a job is rid of a fault on another node, which is the first thing that its user can do."""
    if action.kind in (Kind.RESET_GPU, Kind.REPLACE_HARDWARE, Kind.ASK_USER):
        return action.role is not Role.CHECK
    of_another = _is_asked(action, place) or action.where is Where.HOST
    return action.kind in (Kind.REBOOT, Kind.RELOAD_DRIVER) and of_another


def _is_asked(action: Action, place: Place) -> bool:
    """Return whether somebody else has to be asked for the action, since this user is not root and cannot be."""
    needs_root = action.kind.is_of_the_host or "sudo " in action.command
    return needs_root and not place.may_be_root and action.where is Where.HERE and action.role is not Role.CHECK


def fitted(action: Action, place: Place) -> Action | None:
    """Return the action as it is done at ``place``; None if it cannot be done there, or is so already."""
    try:
        if action.where is Where.SCHEDULER:
            return _started(action, place)
        if action.where is Where.IMAGE:
            return _in_image(action, place)
        if action.where is not Where.HERE or action.kind is Kind.EDIT_PROGRAM:
            return action
        if not action.command:
            is_new = _is_asked(action, place) and not action.note.startswith(_ASKS)
            return action.replaced(note=f"{_asked(place)}: {action.note}") if is_new else action
        _refuse_what_is_so(action, place)
        if action.boot:
            action = _boot(action, place)
        if (other := _of_the_system(action, place)) is not None:
            return other
        if action.pip and action.command.startswith("conda create ") and not place.has_conda:
            return action.replaced(command=_environment(place, action))
        about_gpudiag = any(argument.startswith("gpudiag") for argument in action.pip)
        pip = _PipCommand.of(action.command)
        if pip and pip.verb == "uninstall" and place.manager and place.manager.is_fixed:
            packages = " ".join(word for word in pip.arguments.split() if not word.startswith("-"))
            return fix.note(f"take {packages} out of what {place.manager.name} makes this environment from")
        rewrite = partial(_rewrite, place=place, about_gpudiag=about_gpudiag)
        command = _STEP.sub(rewrite, action.command)
    except _UnfitError:
        return None
    if place.starter and (own := _set_by(place.starter, action, place)):
        return own
    action = _with_clauses(action.replaced(command=command), action, place)
    notebook = place.environment.notebook if place.environment else ""
    return _in_a_notebook(action, place, notebook) if notebook else action


def _refuse_what_is_so(action: Action, place: Place) -> None:
    """Raise if the action would change nothing here."""
    if (
        action.change
        and place.variables
        and all(value is not None and place.variables.get(name) == value for name, value in action.change.items())
    ):
        raise _UnfitError
    if action.pip and _AGAIN.isdisjoint(action.pip):
        pins = [argument.partition("==")[::2] for argument in action.pip]
        if all(place.installed.get(name.replace("_", "-").lower()) == version for name, version in pins):
            raise _UnfitError
    _, joins, group = action.command.partition("usermod -aG ")
    if joins and group.partition(" ")[0] in place.groups:
        raise _UnfitError


def _of_the_system(action: Action, place: Place) -> Action | None:
    """Return what replaces a command of a package manager or a start that this system does not have."""
    if place.way_to_a_gpu and action.kind.is_of_the_host:
        return fix.note(place.way_to_a_gpu)
    programs = [_program(step) for step in _STEP.findall(action.command)]
    if place.wsl and not set(WINDOWS.programs).isdisjoint(programs):
        return None
    if place.wsl and action.kind is Kind.REBOOT:
        return action.replaced(command="wsl.exe --shutdown", note=f"then open WSL again{_also(action.note)}")
    if place.wsl and action.kind in (Kind.CHANGE_DRIVER, Kind.RELOAD_DRIVER):
        text = "install the newest NVIDIA driver in Windows, none in WSL: https://www.nvidia.com/drivers"
        return fix.note(text, kind=Kind.CHANGE_DRIVER)
    managers_of = MANAGERS.intersection(programs)
    if place.system is not None and not place.system.has_cache and "ldconfig" in programs:
        raise _UnfitError
    changes_driver = action.kind is Kind.CHANGE_DRIVER
    if place.is_vgpu and changes_driver and managers_of:
        text = "install the driver for vGPU guests that fits the host's release: whoever runs the host has it"
        return fix.note(text, kind=Kind.CHANGE_DRIVER)
    if place.system is None or managers_of.issubset(place.system.programs):
        return None
    if changes_driver:
        other = place.system.driver or fix.note("install NVIDIA's driver as this system does", kind=action.kind)
        here = fitted(other.replaced(role=action.role) if other.command else other, place)
        return here and here.replaced(note="; ".join(filter(None, (here.note, action.note))))
    first = action.command.removeprefix("sudo ")
    packages = " ".join(word for word in first.split()[2:] if not word.startswith("-"))
    if " install " in action.command and len(programs) == 1 and packages:
        name = next(row.name for row in SYSTEMS if programs[0] in row.programs)
        return fix.note(f"install {packages} (the name on {name}) from this system's packages", kind=action.kind)
    raise _UnfitError


def _program(step: str) -> str:
    """Return the program that a simple command starts, after assignments and ``sudo``."""
    return next((word for word in step.split() if word != "sudo" and "=" not in word), "")


def _also(note: str) -> str:
    return f"; {note}" if note else ""


def _boot(action: Action, place: Place) -> Action:
    """Return how the boot loader of this system is told words for the kernel's command line."""
    if place.system is None:
        return action
    told = fix.fill_in(place.system.boot, {"words": action.boot})
    note, role = "; ".join(filter(None, (told.note, action.note))), action.role if told.command else told.role
    return told.replaced(note=note, role=role)


def _rewrite(step: re.Match[str], *, place: Place, about_gpudiag: bool) -> str:
    """Return one simple command in the words of this place."""
    text = step[0].strip()
    before = step[0][: len(step[0]) - len(step[0].lstrip())]
    after = step[0][len(step[0].rstrip()) :] if text else ""
    rest = text
    while (word := rest.partition(" "))[2] and word[0].partition("=")[0].isidentifier() and "=" in word[0]:
        rest = word[2].lstrip()
    assignments = text[: len(text) - len(rest)]
    if place.root or not place.may_be_root:
        rest = rest.replace("sudo ", "")
    sudo = "sudo " if rest.startswith("sudo ") else ""
    rest = rest.removeprefix(sudo)
    if rest.startswith("update-initramfs -u"):
        if place.system and not place.system.ramdisk:
            raise _UnfitError
        rest = place.system.ramdisk if place.system else rest
    environment = place.environment
    if environment is not None:
        program, _, arguments = rest.partition(" ")
        if (pip := _PipCommand.of(rest)) is not None:
            of_gpudiag = environment.of_gpudiag if about_gpudiag else ""
            rest = pip.by(f"{quote(of_gpudiag)} -m pip") if of_gpudiag else _pip(place, environment, pip)
        elif program in ("python", "python3"):
            rest = " ".join(filter(None, (quote(environment.command or "python"), arguments)))
        elif program in CONDAS:
            rest = _conda(place, environment, rest, arguments.partition(" ")[0])
    return f"{before}{assignments}{sudo}{rest}{after}"


def _conda(place: Place, environment: PythonEnvironment, command: str, verb: str) -> str:
    manager = place.manager
    if verb == "install" and manager and manager.add_of_conda:
        packages = [word for word in _WORDS.findall(command)[2:] if not word.startswith("-")]
        channel = next((word for word in packages if f"-c {word} " in command), "")
        return _of_project(environment, manager.add_of_conda, *(word for word in packages if word != channel))
    if not place.has_conda or (verb in ("install", "remove") and not place.in_conda):
        raise _UnfitError
    is_active = place.variables.get("CONDA_PREFIX", place.prefix) == place.prefix
    if verb == "install" and environment.tool == "conda" and not is_active:
        command = command.replace("conda install", f"conda install -p {quote(place.prefix)}", 1)
    program = next((name for name in CONDAS if name in environment.tools), "conda")
    if program == "micromamba" and verb == "env":
        raise _UnfitError
    return f"{program}{command.removeprefix('conda')}"


def _of_project(environment: PythonEnvironment, *words: str) -> str:
    """Return a command that is typed in the folder of the environment's project."""
    command = " ".join(words)
    return f"cd {quote(environment.project)} && {command}" if environment.project else command


def _environment(place: Place, action: Action) -> str:
    """Return how to make an environment for a Python, with packages in it, without conda."""
    name, python, *_ = action.command.removeprefix("conda create -n ").replace(";", "").split()
    python, packages = python.removeprefix("python="), " ".join(map(quote, action.pip))
    if place.environment and "uv" in place.environment.tools:
        return f"uv venv --python {python} {name} && uv pip install --python {name} {packages}"
    return f"python{python} -m venv {name} && {name}/bin/pip install {packages}"


def _on_top(place: Place, own: str, words: list[str]) -> str:
    """Return the command that makes an environment on top of this one, with the packages in ``words`` besides.

    TensorFlow finds NVIDIA's packages beside itself alone, so it is installed with them.
    """
    packages = [word for word in words if not word.startswith("-")]
    of_nvidia = any("nvidia-" in package for package in packages)
    is_tensorflow = any(package.strip("'\"").startswith("tensorflow") for package in packages)
    if of_nvidia and not is_tensorflow:
        version = place.installed.get("tensorflow", "")
        packages.insert(0, quote(f"tensorflow=={version}" if version else "tensorflow"))
    again = "--ignore-installed " if of_nvidia or is_tensorflow else ""
    install = f"~/tf/bin/pip install {again}{' '.join(packages)}"
    return f"{own} -m venv --system-site-packages ~/tf && {install}"


class _PipCommand(NamedTuple):
    program: str
    """Such as ``pip`` or ``python3 -m pip``."""
    verb: str
    arguments: str

    @classmethod
    def of(cls, command: str) -> _PipCommand | None:
        """Return the parts of a command of pip; None if it is another's."""
        program, _, rest = command.partition(" ")
        if rest.startswith("-m pip ") and "python" in PurePath(program).name:
            program, rest = f"{program} -m pip", rest.removeprefix("-m pip ")
        elif program not in ("pip", "pip3"):
            return None
        verb, _, arguments = rest.partition(" ")
        return cls(program, verb, arguments.strip()) if verb.isalpha() else None

    def by(self, program: str) -> str:
        """Return the command with another program."""
        return f"{program} {self.verb} {self.arguments}".rstrip()


def _pip(place: Place, environment: PythonEnvironment, pip: _PipCommand) -> str:
    """Return a command of pip in the words of the tool that fills the environment."""
    verb, arguments = pip.verb, pip.arguments
    if "/" in pip.program and pip.program != f"{place.executable} -m pip":
        return pip.by(pip.program)  # of another environment
    words = _WORDS.findall(arguments)
    again = "--force-reinstall" in words
    tool, manager = environment.tool, place.manager
    changes = verb in ("install", "uninstall")
    if tool == "pipx":
        return pip.by(f"pipx runpip {PurePath(place.prefix).name}")
    if manager and manager.add and changes and (manager.options or not again):
        packages = [word for word in words if not word.startswith("-")]
        options = [manager.options[word] for word in words if manager.options.get(word)]
        return _of_project(environment, manager.add if verb == "install" else manager.remove, *options, *packages)
    if not environment.has_pip and "uv" in environment.tools:
        if verb not in ("install", "uninstall", "list", "show", "check", "freeze", "tree"):
            raise _UnfitError
        options = [managers.OF_UV.get(word, word) for word in words]
        return " ".join(filter(None, (f"uv pip {verb} --python {quote(place.prefix)}", *options)))
    return _plain_pip(place, environment, pip, words)


def _plain_pip(place: Place, environment: PythonEnvironment, pip: _PipCommand, words: list[str]) -> str:
    """Return a command of pip as this environment lets pip do it."""
    verb, arguments, tool = pip.verb, pip.arguments, environment.tool
    own = environment.command or "python"
    program = pip.program if own == "python" and "/" not in pip.program else f"{quote(own)} -m pip"
    if not environment.has_pip:
        if tool == "system" and place.system and place.system.pip:
            sudo = "" if place.root or not place.may_be_root else "sudo "
            program = f"{sudo}{place.system.pip} && {program}"
        else:
            program = f"{quote(own)} -m ensurepip && {quote(own)} -m pip"
    is_fixed = bool(place.manager and place.manager.is_fixed)
    if verb == "install" and not _is_read_only(place):
        of_the_system = environment.externally_managed and not place.container
        if of_the_system or is_fixed or not (environment.writable or tool == "system"):
            return _on_top(place, quote(own), words)
        if not environment.writable:
            arguments = f"--user {arguments}"
    if environment.externally_managed and verb in ("install", "uninstall"):
        arguments = f"--break-system-packages {arguments}"
    return f"{program} {verb} {arguments}".rstrip()


def _is_read_only(place: Place) -> bool:
    """Return True in a container whose packages nobody can change: only the image can."""
    environment = place.environment
    return bool(place.container and environment and not environment.writable)


def _in_image(action: Action, place: Place) -> Action:
    """Return a line of a Dockerfile as the image of this container has it."""
    if place.container not in _WITH_DEFINITION or not action.command.startswith("RUN "):
        return action
    note = "" if "Dockerfile" in action.note else action.note
    note = "; ".join(filter(None, ("in %post of its definition file; then build it again", note)))
    return action.replaced(command=action.command.removeprefix("RUN "), note=note)


def _with_clauses(action: Action, general: Action, place: Place) -> Action:
    """Return the action with what has to be said of the command here; ``general`` is the one before it was fitted."""
    clauses, before = [], general.command
    if _is_asked(general, place):
        clauses.append(f"{_asked(place)} to run it as root")
    elif not place.may_be_root and "sudo " in before:
        clauses.append("as root")
    environment = place.environment
    if environment is not None and any(_PipCommand.of(step.strip()) for step in _STEP.findall(before)):
        if _is_read_only(place) and action.kind in (Kind.INSTALL, Kind.REMOVE):
            return _in_image(action.replaced(command=f"RUN {action.command}", where=Where.IMAGE), place)
        if "-m venv --system-site-packages ~/tf " in action.command:
            clauses.append("then run the program with ~/tf/bin/python")
        elif place.manager and place.manager.keep and action.kind is Kind.INSTALL:
            clauses.append(place.manager.keep)
    if not clauses:
        return action
    return action.replaced(note="; ".join(filter(None, (*clauses, action.note))))


_ASKS = ("ask ", "have ")


def _asked(place: Place) -> str:
    """Return whom to ask for what needs root."""
    return f"ask the administrators of {place.node}" if place.job and place.node else "ask an administrator"


# --- variables


def _values(action: Action, place: Place) -> dict[str, str | None]:
    """Return what the variables are after the action, if it does nothing else."""
    if action.first:
        values = place.variables
        if place.system is None or "PATH" in action.first.keys() - values.keys():
            return {}  # it is not known what the list has, as in a log: nothing but a shell could keep that
        return {name: ":".join(filter(None, (new, values.get(name)))) for name, new in action.first.items()}
    return dict(action.change or {})


def _set_by(starter: Starter, action: Action, place: Place) -> Action | None:
    """Return how what starts the program is told the variables of the action; None if the action sets none."""
    values = _values(action, place)
    if not values:
        return None
    taken = [name for name, value in values.items() if value is None]
    if taken:
        text = f"take {' and '.join(taken)} out of {starter.place}: {starter.name} starts the program"
        return fix.note(f"{text}{_also(action.note)}", kind=action.kind)
    told = [
        starter.setting(name, value or "", place.unit, of_loader=name in _OF_THE_LOADER)
        for name, value in values.items()
    ]
    commands, notes = (list(dict.fromkeys(filter(None, texts))) for texts in zip(*told, strict=True))
    note = "; ".join((*notes, *filter(None, [action.note])))
    if not commands:
        return fix.note(note, kind=action.kind)
    asks = () if place.may_be_root else (f"{_asked(place)} to do it",) if "sudo " in commands[0] else ()
    plain = place.root or not place.may_be_root
    command = " && ".join(command.replace("sudo ", "") if plain else command for command in commands)
    return action.replaced(command=command, note="; ".join((*asks, note)), change=None, first=None)


_KERNEL = "then choose the kernel gpu: a cell is too late for what the loader reads"
_CELL = "in a cell, before TensorFlow is imported: restart the kernel first"
_SERVER = "in the shell that starts the notebook's server: a cell is too late for it"
_HUB = "for all users, it is an entry of c.Spawner.environment in jupyterhub_config.py"
_OF_A_SHELL = ("ulimit", "module", "source", "export", "unset", "umask")
"""Commands that change the shell that they are typed in alone; a cell starts one that ends at once."""
_OF_A_TERMINAL = {Kind.CONFIGURE, Kind.INSTALL_AS_ROOT, Kind.CHANGE_DRIVER, Kind.RELOAD_DRIVER, Kind.RESET_GPU}
"""Kinds of commands that ask for a password, unless root types them: a cell has nobody who could answer."""


def _in_a_notebook(action: Action, place: Place, notebook: str) -> Action:
    """Return the action as a cell of a notebook, which has no shell whose variables last.

    The loader reads its variables when a process starts, so no cell can set them; Jupyter starts each kernel with
    those that it was installed with.
    """
    is_root = bool(place.root)
    values = _values(action, place)
    if action.kind is Kind.SET_VARIABLE and (not values or values.keys() & _OF_THE_LOADER):
        if not values or None in values.values() or not notebook.startswith("Jupyter"):
            return action.replaced(note="; ".join(filter(None, (_SERVER, action.note))))
        options = " ".join(f"--env {name} {quote(value or '')}" for name, value in values.items())
        python = quote(place.executable or "python")
        note = "; ".join(filter(None, (_KERNEL, _HUB if notebook == "JupyterHub" else "", action.note)))
        return action.replaced(command=f"!{python} -m ipykernel install --user --name gpu {options}", note=note)
    if action.change:
        lines = [
            f"os.environ[{name!r}] = {value!r}" if value is not None else f"os.environ.pop({name!r}, None)"
            for name, value in action.change.items()
        ]
        note = "; ".join(filter(None, (_CELL, action.note)))
        return action.replaced(command="; ".join(("import os", *lines)), note=note)
    if action.where is not Where.HERE:
        return action
    if (action.kind in _OF_A_TERMINAL and not is_root) or "systemctl edit" in action.command:
        return action.replaced(note="; ".join(filter(None, ("in a terminal", action.note))))
    programs = {_program(step) for step in _STEP.findall(action.command)}
    if not programs.isdisjoint(_OF_A_SHELL):
        return action.replaced(note="; ".join(filter(None, (_SERVER, action.note))))
    magic = "%" if action.command.startswith("pip ") and not set(";&|") & set(action.command) else "!"
    return action.replaced(command=f"{magic}{action.command}")


# --- containers


def _started(action: Action, place: Place) -> Action | None:
    """Return how the runtime of this container is told what ``docker run`` is told in the action."""
    if not action.command:
        return action if place.container is None or _is_meant(action.note, place) else None
    if not action.container or place.container is None:
        return action
    *options, image = action.container
    if not place.container:
        return action if "/" in image or place.environment is None else None
    gives_gpus = {option.partition(" ")[0] for option in options} == {"--gpus"}
    if place.has_gpus and gives_gpus and "/" not in image:
        return None
    sandbox = BY_NAME.get(place.container)
    if sandbox is None or sandbox.name == "docker":
        return action
    if sandbox.start is None:
        return sandbox.give.replaced(role=action.role) if gives_gpus else action
    command, clause = sandbox.start(options, "IMAGE" if image == "..." else image)
    if not command:
        return fix.note(clause, kind=Kind.START_CONTAINER) if clause else None
    note = "" if any(word in action.note for word in _OF_DOCKER_ALONE) else action.note
    return action.replaced(command=command, note="; ".join(filter(None, (clause, note))))


def _is_meant(sentence: str, place: Place) -> bool:
    """Return whether a sentence may be about this place: some begin with the one that they are about."""
    begin = next((words for words in _RUNS if sentence.startswith(words)), None)
    rest = "" if begin is None else sentence.removeprefix(begin)
    meant = next((name for name in _ELSEWHERE if rest.startswith(name)), "")
    if meant in ("a pod", "Kubernetes"):
        return place.container == "kubernetes"
    return meant != "a container" or bool(place.container)
