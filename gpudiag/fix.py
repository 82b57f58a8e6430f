"""What to do about a cause or a finding: actions, as data that people read and programs decide by.

Causes, messages and probes build them with the functions below. The texts of an action may have fields, as a format
string has; :func:`fill_in` puts the figures in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from shlex import quote
from textwrap import wrap
from typing import Any, NamedTuple

import msgspec

from gpudiag import text
from gpudiag.record import Record
from gpudiag.text import one_line


class Role(str, Enum):
    """What an action is for."""

    FIX = "fix"
    ALTERNATIVE = "alternative"
    """An action to do in place of the fix before it."""
    CHECK = "check"
    """A command that only looks; its output shows what to do next."""
    PREVENT = "prevent"
    """An action that keeps the fault from coming back."""
    NOTE = "note"
    """A sentence, without anything to type."""


class Where(str, Enum):
    """Where an action has to be done."""

    HERE = "here"
    HOST = "host"
    """On the host of the container that was examined."""
    IMAGE = "image"
    """In the files that the container's image is built from."""
    PROGRAM = "program"
    """In the user's own program."""
    SCHEDULER = "scheduler"
    """In the job, the pod or the allocation that starts the program."""


class Kind(str, Enum):
    """What an action does to the machine."""

    NONE = "none"
    """Nothing: a sentence to know, or a command that only asks Python, gpudiag or NVIDIA's driver."""
    LOOK_AT_SYSTEM = "look at the system"
    """Nothing: the kernel's log, services, device files or libraries of a Linux system are read, often as root."""
    COMMAND = "command"
    """Anything else that another command can undo."""
    SET_VARIABLE = "set a variable"
    INSTALL = "install"
    """Packages are installed by pip or conda, or by Windows's own means."""
    INSTALL_AS_ROOT = "install as root"
    """Packages of a Linux system are installed, except the driver."""
    NEW_ENVIRONMENT = "make an environment"
    """A new environment for Python is made and filled; those that there are stay as they are."""
    EDIT_PROGRAM = "edit the program"
    START_CONTAINER = "start the container again"
    """A container, a pod or a job is started again with other options."""
    REBOOT = "reboot"
    """The machine is switched off or started again."""
    RESET_GPU = "reset a GPU"
    CONFIGURE = "configure the machine"
    """Settings of a GPU, a service, the container runtime, a user's rights or limits are changed."""
    RELOAD_DRIVER = "reload the driver"
    """The driver's kernel modules are loaded, again if they were."""
    CHANGE_DRIVER = "change the driver"
    """A driver, a kernel module or its options, firmware or the way the machine starts are changed."""
    REMOVE = "remove"
    """Packages or files are removed."""
    END_PROCESS = "end a process"
    REPLACE_HARDWARE = "replace hardware"
    """A card, a cable, a power supply or a slot has to be replaced or repaired by hand."""
    ASK_ADMIN = "ask the administrator"
    """Only an administrator of the machine, the cluster or the service can do it."""
    ASK_USER = "ask another user"
    """Only the user of another process can do it."""

    @property
    def can_harm(self) -> bool:
        """True if the action may cost work, or the use of the machine, when it is applied to the wrong cause."""
        return self in _HARMFUL

    @property
    def is_of_linux(self) -> bool:
        """True if a command of this kind is one of a Linux system, which no other has."""
        return self in _OF_LINUX

    @property
    def is_of_the_host(self) -> bool:
        """True if the action cannot be done inside a container."""
        return self in _OF_THE_HOST


_PLAIN = frozenset({Kind.NONE, Kind.LOOK_AT_SYSTEM, Kind.COMMAND})
_OF_THE_HOST = frozenset({Kind.REBOOT, Kind.RESET_GPU, Kind.RELOAD_DRIVER, Kind.CHANGE_DRIVER, Kind.REPLACE_HARDWARE})
_OF_LINUX = _OF_THE_HOST | {Kind.LOOK_AT_SYSTEM, Kind.INSTALL_AS_ROOT, Kind.CONFIGURE, Kind.START_CONTAINER}
_HARMFUL = frozenset(
    {Kind.REBOOT, Kind.RESET_GPU, Kind.RELOAD_DRIVER, Kind.CHANGE_DRIVER, Kind.REMOVE, Kind.END_PROCESS}
)


class Action(Record):
    """One thing to do, or to know, about a cause or a finding."""

    command: str = ""
    """A complete command or line of code that can be pasted as it stands; empty for a note."""
    note: str = ""
    """A clause beside the command; a sentence if there is no command."""
    role: Role = Role.FIX
    where: Where = Where.HERE
    kind: Kind = Kind.NONE
    change: dict[str, str | None] | None = None
    """The variables that the command sets (None: unsets), if it does nothing else: such an action can be tried."""
    pip: tuple[str, ...] = ()
    """The arguments of ``pip install``, if the command is that alone, or makes an environment for it."""
    container: tuple[str, ...] = ()
    """The options of ``docker run``, each with its value, and at the end the image, if the command starts a container:
    every runtime is told them in its own words."""
    first: dict[str, str] | None = None
    """The folders that the command puts before those of lists such as ``LD_LIBRARY_PATH``, if it does nothing else."""
    boot: str = ""
    """The words that the command adds to the kernel's command line, as GRUB of Debian does it."""

    @property
    def clause(self) -> str:
        """The clause beside the command: the note, and the place if that is the host."""
        return ": ".join(filter(None, ("on the host" if self.where is Where.HOST else "", self.note)))

    @property
    def text(self) -> str:
        """The action as part of a sentence."""
        return f"{self.command} ({self.clause})" if self.command and self.clause else self.command or self.clause

    @property
    def is_sentence(self) -> bool:
        """True if the text ends as a sentence does."""
        return self.note.endswith(".")

    @property
    def tags(self) -> str:
        """The kind and the place of the action, unless it is a plain command to type here."""
        where = "" if self.where in (Where.HERE, Where.HOST) else f"in the {self.where.value}"
        return ", ".join(filter(None, ("" if self.kind in _PLAIN else self.kind.value, where)))

    def does_the_same(self, other: Action) -> bool:
        """Return True if both do the same, whatever is said beside their commands."""
        return self.command == other.command if self.command else self == other

    def names(self, subject: re.Pattern[str]) -> bool:
        """Return True if the command has a subject, such as a product or a package."""
        return subject.search(self.command) is not None

    def is_said_of(self, subject: re.Pattern[str]) -> bool:
        """Return True if the note has a subject, such as a product or a package."""
        return subject.search(self.note) is not None

    def replaced(self, **fields: object) -> Action:
        """Return this action with other values of some fields."""
        return msgspec.structs.replace(self, **fields)


def run(
    command: str,
    note: str = "",
    *,
    kind: Kind = Kind.COMMAND,
    role: Role = Role.FIX,
    where: Where = Where.HERE,
    change: dict[str, str | None] | None = None,
) -> Action:
    """Return a command of any kind; ``change`` is given if the command only changes variables."""
    return Action(command, note, role, where, kind, change)


def unset(*names: str, note: str = "", role: Role = Role.FIX) -> Action:
    """Return the command that unsets variables."""
    return Action(f"unset {' '.join(names)}", note, role, Where.HERE, Kind.SET_VARIABLE, dict.fromkeys(names))


def export(name: str, value: str, note: str = "", *, role: Role = Role.FIX) -> Action:
    """Return the command that sets a variable. ``value`` is taken as it is: no shell expands it."""
    return Action(f"export {name}={_word(value)}", note, role, Where.HERE, Kind.SET_VARIABLE, {name: value})


def prepend(name: str, value: str, note: str = "", *, role: Role = Role.FIX) -> Action:
    """Return the command that puts folders before those of a list such as ``LD_LIBRARY_PATH``."""
    command = f"export {name}={_word(value)}:${name}"
    return Action(command, note, role, Where.HERE, Kind.SET_VARIABLE, first={name: value})


def install(*arguments: str, note: str = "", role: Role = Role.FIX, python: str = "") -> Action:
    """Return the command of pip that installs packages: requirements, or options of ``pip install``."""
    pip = f"{python} -m pip" if python else "pip"
    command = f"{pip} install {' '.join(map(_word, arguments))}"
    return Action(command, note, role, Where.HERE, Kind.INSTALL, None, arguments)


def new_environment(*packages: str, note: str = "", python: str = "python", folder: str = "fresh") -> Action:
    """Return the command that makes an environment for Python, with packages in it."""
    command = f"{python} -m venv {folder} && {folder}/bin/pip install {' '.join(map(_word, packages))}"
    return Action(command, note, kind=Kind.NEW_ENVIRONMENT, pip=packages)


def conda_environment(*packages: str, note: str = "", python: str = "3.12", name: str = "tf") -> Action:
    """Return the commands that make an environment of conda, with packages of pip in it."""
    pip = f"pip install {' '.join(map(_word, packages))}"
    command = f"conda create -n {name} python={python}; conda activate {name}; {pip}"
    return Action(command, note, kind=Kind.NEW_ENVIRONMENT, pip=packages)


def configure(command: str, note: str = "", *, role: Role = Role.FIX, where: Where = Where.HERE) -> Action:
    """Return a command that changes settings of the machine."""
    return Action(command, note, role, where, Kind.CONFIGURE)


def start(command: str, note: str = "", *, role: Role = Role.FIX) -> Action:
    """Return the command that starts a container, a pod or a job again; it is typed outside of it."""
    return Action(command, note, role, Where.SCHEDULER, Kind.START_CONTAINER)


def run_container(*options: str, image: str = "...", note: str = "", role: Role = Role.FIX) -> Action:
    """Return how a container is started with ``options``, each with its value, such as ``--gpus all``.

    Docker's options stand for those of every runtime; ``...`` is the image, and what else, that was started before.
    """
    words = (*options, image)
    command = f"docker run {' '.join(words)}"
    return Action(command, note, role, Where.SCHEDULER, Kind.START_CONTAINER, container=words)


def reboot(note: str = "", *, role: Role = Role.FIX) -> Action:
    """Return the command that starts the machine again."""
    return Action("sudo reboot", note, role, Where.HERE, Kind.REBOOT)


def boot_with(words: str, note: str = "", *, role: Role = Role.FIX) -> Action:
    """Return the command that adds words to the kernel's command line, for the next start of the machine."""
    command = f"""sudo sed -i 's/^GRUB_CMDLINE_LINUX="/&{words} /' /etc/default/grub && sudo update-grub"""
    return Action(command, note, role, Where.HERE, Kind.CHANGE_DRIVER, boot=words)


def install_driver(note: str = "", *, role: Role = Role.FIX, where: Where = Where.HERE) -> Action:
    """Return the command that installs NVIDIA's driver."""
    return Action("sudo apt install nvidia-driver-580", note, role, where, Kind.CHANGE_DRIVER)


def reload_uvm(note: str = "", *, role: Role = Role.FIX) -> Action:
    """Return the command that loads the module again that a suspend leaves without its device."""
    command = "sudo rmmod nvidia_uvm && sudo modprobe nvidia_uvm"
    return Action(command, note, role, Where.HERE, Kind.RELOAD_DRIVER)


def reset_gpu(gpus: str, note: str = "", *, role: Role = Role.FIX) -> Action:
    """Return the command that resets GPUs, by NVML's indices or by PCI bus ids, such as ``0,1``."""
    return Action(f"sudo nvidia-smi --gpu-reset -i {gpus}", note, role, Where.HERE, Kind.RESET_GPU)


def check(command: str, note: str = "", *, where: Where = Where.HERE) -> Action:
    """Return a command of a Linux shell that only looks; the note says what to look for in its output."""
    return Action(command, note, Role.CHECK, where, Kind.LOOK_AT_SYSTEM)


def ask(command: str, note: str = "") -> Action:
    """Return a check that any system has: a command of Python, pip, conda or gpudiag."""
    return Action(command, note, Role.CHECK)


def nvidia_smi(note: str = "", options: str = "") -> Action:
    """Return the check that asks NVIDIA's driver about its GPUs."""
    return ask(f"nvidia-smi {options}".rstrip(), note)


def kernel_log(note: str = "") -> Action:
    """Return the check that shows what the kernel's log has from NVIDIA's driver."""
    return check("sudo dmesg | grep -i -e nvrm -e xid", note)


def edit(code: str, note: str = "", *, role: Role = Role.FIX) -> Action:
    """Return a line of code for the user's own program."""
    return Action(code, note, role, Where.PROGRAM, Kind.EDIT_PROGRAM)


def note(sentence: str, *, kind: Kind = Kind.NONE, where: Where | None = None) -> Action:
    """Return a note: one sentence about something that no command does."""
    return Action(note=sentence, role=Role.NOTE, where=where or _PLACES.get(kind, Where.HERE), kind=kind)


def edit_note(sentence: str) -> Action:
    """Return one sentence about a change of the user's own program."""
    return note(sentence, kind=Kind.EDIT_PROGRAM)


_PLACES = {Kind.EDIT_PROGRAM: Where.PROGRAM, Kind.START_CONTAINER: Where.SCHEDULER}


_TEMPLATE = re.compile(r"(?:[\w@%+=:,./-]|\{\w+\})+")
"""A word of a shell command that needs no quotes, apart from the fields in it."""


def _word(text: str) -> str:
    return text if _TEMPLATE.fullmatch(text) else quote(text)


def fill_in(action: Action, figures: Mapping[str, Any]) -> Action:
    """Return the action with the figures put in; a path with a space is quoted in the command."""
    quoted = dict(figures)
    for name, value in figures.items():
        path = isinstance(value, str) and value.startswith("/") and action.kind is not Kind.EDIT_PROGRAM
        if path and not re.search(rf"['\"]\{{{name}\}}", action.command):
            # Several files are a list, each a word of the command.
            quoted[name] = " ".join(map(quote, re.split(r" (?=/)", value)))
    change = action.change and {
        name.format_map(figures): value and value.format_map(figures) for name, value in action.change.items()
    }
    return action.replaced(
        command=action.command.format_map(quoted),
        note=action.note.format_map(figures),
        change=change,
        pip=tuple(argument.format_map(figures) for argument in action.pip),
        container=tuple(option.format_map(figures) for option in action.container),
        first=action.first and {name: folders.format_map(figures) for name, folders in action.first.items()},
        boot=action.boot.format_map(figures),
    )


def distinct(actions: Iterable[Action]) -> tuple[Action, ...]:
    """Return the actions without duplicates."""
    kept: list[Action] = []
    for action in actions:
        if action not in kept:
            kept.append(action)
    return tuple(kept)


_BLANK = re.compile(r"\bX\.Y\b|\b(?:FILE|NAME|PACKAGE|VERSION|FOLDER|PREFIX|IMAGE)\b")
"""What somebody else has to fill in before a command can be typed."""


def complete_first(actions: Sequence[Action]) -> tuple[Action, ...]:
    """Return the actions with a complete fix first, if there is one beside a command that has a blank."""
    if not actions or not _BLANK.search(actions[0].command):
        return tuple(actions)
    complete = (action for action in actions if action.role in (Role.FIX, Role.ALTERNATIVE) and action.command)
    first = next((action for action in complete if not _BLANK.search(action.command)), None)
    return distinct((first, *actions)) if first is not None else tuple(actions)


_WIDTH = 68
_HEADINGS = {Role.FIX: "fix", Role.ALTERNATIVE: "or", Role.CHECK: "check", Role.PREVENT: "prevent", Role.NOTE: "note"}


class Shown(NamedTuple):
    """An action as people read it."""

    heading: str
    text: str
    """The command, or the sentence of a note."""
    clause: str
    """What is said about the command, which is shown on a line of its own: a line can be copied as it stands."""
    action: Action


def shown(actions: Iterable[Action], *, without: Iterable[Action] = ()) -> Iterator[Shown]:
    """Yield each action with a heading; a recommended note gets the heading of a fix.

    No command and no sentence is yielded twice, nor one that an action of ``without`` has.
    """
    texts = {action.command or action.clause for action in without}
    for number, action in enumerate(actions):
        if (action.command or action.clause) in texts:
            continue
        texts.add(action.command or action.clause)
        heading = "fix" if number == 0 and action.role is Role.NOTE else _HEADINGS[action.role]
        text, clause = (action.command, action.clause) if action.command else (action.clause, "")
        yield Shown(heading, one_line(text), one_line(clause), action)


def manual(actions: Iterable[Action]) -> Iterator[str]:
    """Yield the lines of each action: the command, and below it the clause, the kind and the place."""
    for item in shown(map(with_names, actions)):
        tags = f"[{item.action.tags}]" if item.action.tags else ""
        text = [item.text] if item.action.command else wrap(item.text, _WIDTH)
        first, *rest = *text, *wrap(f"{item.clause} {tags}".strip(), _WIDTH)
        yield f"{item.heading:<6} {first}"
        yield from (f"{'':<6} {line}" for line in rest)


def with_names(action: Action) -> Action:
    """Return the action with the names of its figures in angle brackets."""
    return action.replaced(command=text.with_names(action.command), note=text.with_names(action.note))
