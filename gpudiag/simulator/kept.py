"""Simulated machines that outlive a command: `gpudiag simulate --keep NAME`, `--attach`, `--list` and `--stop`.

A kept machine is a folder and not a process, so nothing can die that others need. Who holds how much memory is in the
folder's table (src/memory.c), which drops processes that are gone.

Where: `$XDG_RUNTIME_DIR/gpudiag-machines-<uid>`, if $XDG_RUNTIME_DIR is a folder of this user, or else
`/tmp/gpudiag-machines-<uid>`. Machines that are shared are always in the latter, because nobody else can enter the
former.

Who may attach: the user who keeps the machine; every user of the system if it is shared. Only its owner can stop it,
but who attaches writes to its table. Another user's machine is `OWNER/NAME`, never `NAME` alone. No code of its owner
runs: programs get the libraries of the gpudiag that attaches, in a folder of this user that links to the owner's
description and table (a view).
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path

import msgspec

import gpudiag
from gpudiag import folders, trust
from gpudiag.record import Record
from gpudiag.simulator.errors import SimulatorError
from gpudiag.simulator.faults import Fault, parse_faults
from gpudiag.simulator.machine import SPEC_FILE, Machine, environment_on, link_libraries, processes_on, write_programs
from gpudiag.simulator.spec import MachineSpec
from gpudiag.text import counted, printable

if sys.platform != "win32":
    import fcntl

PUBLIC = Path("/tmp")  # noqa: S108  # every shell has to find the same; what is there is opened as _trusted says
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
_STATE = "kept.json"


class MachineFile(Record):
    """The description of a machine in its folder."""

    identity: str
    """A random name that differs from that of any other machine with the same title."""
    summary: str
    gpus: int
    spec: str
    faults: tuple[str, ...]
    shared: bool
    since: str
    """The creation time in ISO 8601, with the offset from UTC."""
    version: str
    """The version of gpudiag that made the machine: libraries of another version may lay out the table differently."""
    boot: str
    """The boot id of the system: a machine ends with the system that it was made on."""


class KeptMachine(Record):
    """A machine that is kept."""

    name: str
    user: int
    """The user id of the machine's owner."""
    folder: str
    state: MachineFile

    @property
    def own(self) -> bool:
        return self.user == os.getuid()

    @property
    def owner(self) -> str:
        return trust.user_name(self.user).removeprefix("uid ")

    @property
    def title(self) -> str:
        """The machine's name for this user."""
        return self.name if self.own else f"{self.owner}/{self.name}"

    @property
    def view(self) -> str:
        """The name of the folder through which another user uses the machine."""
        return f"{self.user}+{self.name}+{self.state.identity}"

    def processes(self) -> list[int]:
        """Return the processes on the machine that this user may see: his own or, for root, all."""
        return sorted(processes_on(lambda folder: str(folder) == self.folder or folder.name == self.view))


def keep(
    name: str, spec: str | MachineSpec, faults: Iterable[str | Fault] = (), *, shared: bool = False
) -> KeptMachine:
    """Make a machine that exists until it is stopped, or the system ends."""
    if not _NAME.match(name):
        raise SimulatorError(
            f"{printable(name)!r} cannot be the name of a machine: write 1 to 64 letters, digits, '.', '_' and '-', "
            "a letter or digit first, such as lab."
        )
    machine = Machine(spec, faults)
    place = _shared_place(os.getuid()) if shared else _own_place()
    state = MachineFile(
        identity=secrets.token_hex(8),
        summary=machine.summary,
        gpus=len(machine.spec.gpus),
        spec=machine.spec.text,
        faults=tuple(map(str, machine.faults)),
        shared=shared,
        since=datetime.now().astimezone().isoformat(timespec="seconds"),
        version=gpudiag.__version__,
        boot=folders.boot(),
    )
    with _locked(place):
        _remove_leftovers(place)
        for there in _own():
            if there.name == name:
                raise SimulatorError(
                    f"a machine {name} is kept already: {there.state.summary}. Use it with 'gpudiag simulate "
                    f"--attach {name}', or end it with 'gpudiag simulate --stop {name}'."
                )
        if (place / name).exists():
            raise SimulatorError(
                f"{place / name} is in the way: another version of gpudiag keeps a machine there, or gpudiag did not "
                "make it. Choose another name."
            )
        with folders.new(place / name, 0o755 if shared else 0o700) as folder:
            before = os.umask(0o022)  # who may enter the folder may read what is in it
            try:
                machine.write(folder)
                (folder / "memory").touch()
                (folder / "memory").chmod(0o666 if shared else 0o600)
                (folder / _STATE).write_bytes(msgspec.json.encode(state))
            finally:
                os.umask(before)
    return KeptMachine(name=name, user=os.getuid(), folder=str(place / name), state=state)


def machines() -> list[KeptMachine]:
    """Return the machines that this user may attach to, in the order of their names: his own, then those of others.

    Nothing is created or removed.
    """
    own = _own()
    others = []
    for place in PUBLIC.glob("gpudiag-machines-*"):
        number = place.name.rpartition("-")[2]
        if number.isdecimal() and int(number) != os.getuid():
            others += [machine for machine in _in(place, int(number)) if machine.state.shared]
    return sorted(own, key=lambda machine: machine.name) + sorted(others, key=lambda machine: machine.title)


def find(title: str) -> KeptMachine:
    """Return the machine `NAME`, or `OWNER/NAME` of another user; the SimulatorError for a missing one lists all."""
    there = machines()
    for machine in there:
        if title in (machine.title, f"{machine.owner}/{machine.name}"):
            return machine
    if there:
        known = "there is " + ", ".join(f"{machine.title} ({counted(machine.state.gpus, 'GPU')})" for machine in there)
    else:
        known = "there is none. Make one with 'gpudiag simulate --keep NAME 2'"
    raise SimulatorError(f"no simulated machine {printable(title)!r} is kept here: {known}.")


def attach(
    machine: KeptMachine, base: Mapping[str, str] | None = None, faults: Iterable[str | Fault] = ()
) -> dict[str, str]:
    """Return the environment of a process that lives on the machine; see ``machine.environment_on``."""
    if machine.state.version != gpudiag.__version__:
        raise SimulatorError(
            f"machine {machine.title} was made by gpudiag {machine.state.version}, and this is {gpudiag.__version__}. "
            f"Use that one, or run 'gpudiag simulate --stop {machine.title}' and make it again with --keep."
        )
    folder = Path(machine.folder) if machine.own else _view(machine)
    return environment_on(folder, base, faults)


def stop(machine: KeptMachine) -> list[int]:
    """Stop the machine and return the processes that still run on it; these keep their memory."""
    folder = Path(machine.folder)
    if not machine.own:
        raise SimulatorError(f"machine {machine.title} belongs to {machine.owner}, who alone can stop it.")
    processes = machine.processes()
    with _locked(folder.parent):
        state = _state(folder)
        if state is None or state.identity != machine.state.identity:
            raise SimulatorError(f"machine {machine.title} has ended meanwhile, and another one may have its name.")
        if not folders.remove(folder):
            raise SimulatorError(
                f"{folder} was not removed: it has no mark of the gpudiag that made it, or a file system is mounted "
                "in it."
            )
        _remove_leftovers(folder.parent)
    return processes


def _view(machine: KeptMachine) -> Path:
    """Return this user's folder for a machine of another user."""
    place = _own_place()
    folder = place / machine.view
    with _locked(place):
        _remove_leftovers(place)
        if not folder.exists():
            with folders.new(folder) as view:
                for name in ("machine.conf", SPEC_FILE, "memory", "root"):
                    (view / name).symlink_to(Path(machine.folder) / name)
                link_libraries(view / "lib", parse_faults(machine.state.faults))
                write_programs(view / "bin")
    return folder


# ---- folders ----


def _own_place() -> Path:
    """Return the folder of machines that only this user may use."""
    given = Path(os.environ.get("XDG_RUNTIME_DIR", ""))
    if given.is_absolute() and not _distrust(given, os.getuid()):
        return given / _place_name(os.getuid())
    return _shared_place(os.getuid())


def _shared_place(user: int) -> Path:
    return PUBLIC / _place_name(user)


def _place_name(user: int) -> str:
    return f"gpudiag-machines-{user}"


def _distrust(folder: Path, user: int) -> str:
    """Return why a user other than ``user`` may have written into ``folder``; "" if none may."""
    try:
        if not stat.S_ISDIR(folder.lstat().st_mode):
            return "it is not a folder"
    except OSError as error:
        return str(error.strerror)
    return trust.distrust(folder, frozenset({user}))


@contextlib.contextmanager
def _locked(place: Path) -> Iterator[None]:
    """Hold the lock of a user's folder of machines, which is created if missing. The lock ends with the process."""
    try:
        with contextlib.suppress(FileExistsError):
            place.mkdir(mode=0o700)
            if place.parent == PUBLIC:
                place.chmod(0o755)  # whatever the umask: shared machines are in it
        if reason := _distrust(place, os.getuid()):
            raise SimulatorError(f"{place}, the folder of simulated machines, cannot be used: {reason}. Remove it.")
        folder = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise _unusable(place, error) from error
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    except OSError as error:
        raise _unusable(place, error) from error
    finally:
        os.close(folder)


def _unusable(place: Path, error: OSError) -> SimulatorError:
    return SimulatorError(
        f"the folder of simulated machines {place} cannot be used: {error.strerror or error}. Set XDG_RUNTIME_DIR to a "
        "folder that belongs to you."
    )


def _remove_leftovers(place: Path) -> None:
    """Remove unused files from this user's folder, which is locked.

    This includes each view of another user's machine that is gone or was replaced by another of the same name.
    """
    folders.remove_leftovers(place, "")
    for view in place.glob("*+*+*"):
        identity = view.name.rpartition("+")[2]
        description = view / "root"
        if description.is_symlink() and _is_gone(description.readlink().parent, identity):
            folders.remove(view)


def _is_gone(machine: Path, identity: str) -> bool:
    """Return whether the machine ``identity`` has surely left the folder ``machine``."""
    try:
        machine.lstat()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    state = _state(machine)
    return state is not None and state.identity != identity


def _own() -> list[KeptMachine]:
    user = os.getuid()
    return [machine for place in {_own_place(), _shared_place(user)} for machine in _in(place, user)]


def _in(place: Path, user: int) -> Iterator[KeptMachine]:
    """Yield the machines of a user in a folder; none if other users could have put them there."""
    if _distrust(place, user):
        return
    with contextlib.suppress(OSError):
        for folder in place.iterdir():
            state = _state(folder) if _NAME.match(folder.name) and not _distrust(folder, user) else None
            if state is not None and state.boot == folders.boot():
                yield KeptMachine(name=folder.name, user=user, folder=str(folder), state=state)


def _state(folder: Path) -> MachineFile | None:
    """Return the description in a machine's folder; None if there is none, or if another version of gpudiag wrote
    it."""
    try:
        return msgspec.json.decode((folder / _STATE).read_bytes(), type=MachineFile)
    except (OSError, msgspec.MsgspecError):
        return None
