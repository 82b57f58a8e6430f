"""What to do about a cause or a finding: actions, as data that people read and programs decide by."""

from __future__ import annotations

from enum import Enum

import msgspec

from gpudiag.record import Record


class Role(str, Enum):
    """What an action is for."""

    FIX = "fix"
    ALTERNATIVE = "alternative"
    """Instead of the fix before it."""
    CHECK = "check"
    """It only looks; what it prints decides."""
    PREVENT = "prevent"
    """It keeps the fault from coming back."""
    NOTE = "note"
    """Nothing to type: a sentence."""


class Where(str, Enum):
    """Where an action has to be done."""

    HERE = "here"
    HOST = "host"
    """On the host of the container that was examined."""
    IMAGE = "image"
    """In what the container's image is built from."""
    PROGRAM = "program"
    """In the user's own program."""
    SCHEDULER = "scheduler"
    """In the job, the pod or the allocation that starts the program."""


class Kind(str, Enum):
    """What an action does to the machine."""

    COMMAND = "command"
    """Anything else that another command can take back."""
    SET_VARIABLE = "set a variable"
    INSTALL = "install"
    """Packages of one Python environment or of the system, apart from the driver."""
    EDIT_PROGRAM = "edit the program"
    START_CONTAINER = "start the container again"
    """A container, a pod or a job is started again with other options."""
    REBOOT = "reboot"
    """The machine is switched off or started again."""
    RESET_GPU = "reset a GPU"
    RELOAD_DRIVER = "reload the driver"
    CHANGE_DRIVER = "change the driver"
    """A driver, a kernel module or its options, firmware or the way the machine starts are changed."""
    REMOVE = "remove"
    """Packages or files are removed."""
    END_PROCESS = "end a process"

    @property
    def can_harm(self) -> bool:
        """Whether it may cost work, or the use of the machine, if the cause is another one."""
        return self in _HARMFUL


_HARMFUL = frozenset(
    {Kind.REBOOT, Kind.RESET_GPU, Kind.RELOAD_DRIVER, Kind.CHANGE_DRIVER, Kind.REMOVE, Kind.END_PROCESS}
)


class Action(Record):
    """One thing to do, or to know, about a cause or a finding."""

    command: str = ""
    """A command or a line of code, complete: it can be pasted as it stands. Empty for a note."""
    note: str = ""
    """A clause beside the command; without a command a sentence."""
    role: Role = Role.FIX
    where: Where = Where.HERE
    kind: Kind = Kind.COMMAND
    change: dict[str, str | None] | None = None
    """Variable to value (None: unset) if that is all the command does: such an action can be tried."""

    @property
    def line(self) -> str:
        """The action as one line that a shell takes: the note follows as a comment."""
        if not self.note:
            return self.command
        return f"{self.command}  # {self.note}" if self.command else f"# {self.note}"

    @property
    def text(self) -> str:
        """The action as a part of a sentence."""
        return f"{self.command} ({self.note})" if self.command and self.note else self.command or self.note

    def replaced(self, **fields: object) -> Action:
        """Return this action with other values of some fields."""
        return msgspec.structs.replace(self, **fields)
