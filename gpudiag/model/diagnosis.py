"""The diagnosis: the stages of TensorFlow's way to a GPU, the causes that were found, and fixes that were tried."""

from __future__ import annotations

from enum import Enum

from gpudiag.fix import Action
from gpudiag.knowledge.fault import Confidence, Stage
from gpudiag.record import Record

__all__ = [
    "Bisection",
    "BisectionOutcome",
    "Confidence",
    "Diagnosis",
    "EnvironmentChange",
    "Failed",
    "FixAttempt",
    "RootCause",
    "Stage",
    "Step",
    "StepStatus",
    "TrialOutcome",
]


class StepStatus(str, Enum):
    """The state of a stage."""

    OK = "ok"
    FAILED = "failed"
    NOT_REACHED = "not reached"
    NOT_KNOWN = "not known"


class Step(Record):
    """The state of one stage on this machine."""

    stage: Stage
    status: StepStatus
    evidence: str = ""
    """One line of evidence."""


class TrialOutcome(str, Enum):
    """The result of trying a fix."""

    WORKS = "works"
    """A matrix product and a convolution on a GPU gave the right result."""
    HELPS_IN_PART = "helps in part"
    """The GPU is listed, but one of the two operations fails."""
    DOES_NOT_HELP = "does not help"
    NOT_TRIED = "not tried"


class FixAttempt(Record):
    """A fix that only changes variables, tried in a new interpreter with nothing else changed."""

    change: dict[str, str | None]
    """The variables that the fix sets; None: unset."""
    outcome: TrialOutcome = TrialOutcome.NOT_TRIED
    detail: str = ""


class RootCause(Record):
    """A reason why TensorFlow does not use a GPU, or not as intended, with its fix."""

    cause_id: str
    """The name of the cause, as ``gpudiag explain`` accepts it."""
    stage: Stage
    confidence: Confidence
    cause: str
    """The cause in one sentence."""
    evidence: tuple[str, ...]
    """The lines of evidence on this machine."""
    fix: tuple[Action, ...]
    """What to do on this machine, the recommended action first."""
    url: str
    """The URL of documentation about the cause."""
    trial: FixAttempt | None = None
    """The trial of the fix's action that only changes variables; None if no action can be tried."""
    unfit: bool = False
    """True if the affected GPUs must not be relied on while the cause is proved, whatever the probes verified."""
    gpus: tuple[str, ...] = ()
    """PCI bus ids of the GPUs that are affected; empty if every GPU is, or if it is not known which."""
    about: tuple[str, ...] = ()
    """The names of the variables, libraries, files and folders that are involved."""
    explains: tuple[str, ...] = ()
    """The names of the messages in the program's log that the cause explains."""


class Failed(Record):
    """A part of the diagnosis that failed because gpudiag itself broke, or that took too long."""

    part: str
    """The cause that was looked for, or another part of the diagnosis."""
    why: str


class EnvironmentChange(Record):
    """A change of the environment that TensorFlow needs to get its GPU."""

    name: str
    """The variable, the entry of a list, the flag, the file or the folder that matters."""
    what: str
    """The change in a few words, such as ``entry 3 of LD_LIBRARY_PATH (/opt/x)``."""
    fix: Action | None = None
    """The action that makes the change; None if another change's action makes both, or if the search was cut short."""
    origin: str = ""
    """The file that sets the variable, if one was found."""
    missing: bool = False
    """True if the entry has to be added; False if it has to be removed."""


class BisectionOutcome(str, Enum):
    """The result of trying other environments."""

    FOUND = "found"
    """TensorFlow fails without the changes, works with them, and fails with fewer."""
    CUT_SHORT = "cut short"
    """TensorFlow works with the changes, but some of them may not be needed."""
    NOT_THE_ENVIRONMENT = "not the environment"
    """TensorFlow fails in a clean environment, too."""
    NOT_REPRODUCED = "not reproduced"
    """The fault does not appear in a new interpreter."""
    LIBRARY_FAILS = "library fails"
    """A library is proved to fail, and does so too without the variables that may choose another copy of it: nothing
    else was tried."""
    OUT_OF_TIME = "out of time"


MOST_LEFT = 3
"""The most parts of an environment that are named as the cause when the time was up."""


class Bisection(Record):
    """The result of trying TensorFlow in other environments, each in a new interpreter."""

    outcome: BisectionOutcome
    changes: tuple[EnvironmentChange, ...] = ()
    before: str = ""
    """The last stage that TensorFlow reached in the environment as it is."""
    after: str = ""
    """The last stage that TensorFlow reached with the changes."""
    wanted: int = 0
    """The number of GPUs that TensorFlow had to list; 0 on a machine without a GPU, where it only had to be
    importable."""
    tried: int = 0
    """The number of interpreters that were started."""
    seconds: float = 0.0
    untried: tuple[str, ...] = ()
    """Settings in files of this machine that were not tried, because another user can have written the file; each with
    the reason."""

    @property
    def is_too_wide(self) -> bool:
        """True if the time was up while many parts were left: most of them have nothing to do with the fault."""
        return self.outcome is BisectionOutcome.CUT_SHORT and len(self.changes) > MOST_LEFT

    @property
    def gpus(self) -> tuple[EnvironmentChange, ...]:
        """The GPUs that fail alone; empty if a part of the environment was found."""
        return tuple(change for change in self.changes if change.name.startswith(("GPU-", "MIG-")))


class Diagnosis(Record):
    """The result of the diagnosis: the stages, and the causes, the first cause first."""

    steps: tuple[Step, ...] = ()
    causes: tuple[RootCause, ...] = ()
    """The causes at the first stage that failed: why no GPU is used. If no stage failed, the configuration problems."""
    folded: tuple[RootCause, ...] = ()
    """Causes at later stages, which follow from the first or come next once it is fixed."""
    harmless: tuple[str, ...] = ()
    """Lines that look like errors but are not, each with the reason."""
    misleading: tuple[str, ...] = ()
    """Lines that name a wrong cause, each with what it really means."""
    failed: tuple[Failed, ...] = ()
    """The parts of the diagnosis that failed: a cause may be missing because of them."""
    origin: str = ""
    """The origin of the program's log: the release of TensorFlow and the system; "" if the log does not show it."""
    unexplained: tuple[str, ...] = ()
    """The lines of the program's log that look most like a fault, if no cause was found."""
    bisection: Bisection | None = None
    """The result of the bisection; None if the environment was not bisected."""

    @property
    def all_causes(self) -> tuple[RootCause, ...]:
        """The causes at any stage, those of the first stage that failed first."""
        return (*self.causes, *self.folded)

    @property
    def proved(self) -> tuple[RootCause, ...]:
        """The causes that are certain, at any stage."""
        return tuple(cause for cause in self.all_causes if cause.confidence is Confidence.PROVED)

    @property
    def broken_at(self) -> Stage | None:
        """The first stage that failed."""
        return next((step.stage for step in self.steps if step.status is StepStatus.FAILED), None)
