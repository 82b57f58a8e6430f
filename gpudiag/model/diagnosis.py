"""The diagnosis: the stages of TensorFlow's way to a GPU, the causes that were found, and fixes that were tried."""

from __future__ import annotations

from enum import Enum

from gpudiag.fix import Action
from gpudiag.record import Record


class Stage(str, Enum):
    """The steps of TensorFlow's way to a GPU, in its order; the first that fails is why no GPU is used."""

    PACKAGE = "package"
    BUILD = "CUDA build"
    RUNTIME_LIBRARY = "runtime library"
    DRIVER_LIBRARY = "driver library"
    DRIVER = "cuInit"
    NVML = "NVML"
    DEVICE_COUNT = "device count"
    LIBRARIES = "library check"
    DEVICE_FILTER = "device filter"
    CONTEXT = "context"
    MEMORY = "memory"
    FIRST_OP = "first op"
    CONFIGURATION = "configuration"
    """The stage after all others: the GPU is used, but not as the user meant."""
    PROGRAM = "program"
    """What a program itself does, as `gpudiag trace` saw it."""


class StepStatus(str, Enum):
    """How a stage went."""

    OK = "ok"
    FAILED = "failed"
    NOT_REACHED = "not reached"
    NOT_KNOWN = "not known"


class Step(Record):
    """How one stage went on this machine."""

    stage: Stage
    status: StepStatus
    evidence: str = ""
    """One line of evidence."""


class Confidence(str, Enum):
    """How certain a cause is."""

    PROVED = "proved"
    LIKELY = "likely"
    POSSIBLE = "possible"


class TrialOutcome(str, Enum):
    """What came of trying a fix."""

    WORKS = "works"
    """A matrix product and a convolution on a GPU came out right."""
    HELPS_IN_PART = "helps in part"
    """The GPU is listed, and one of them fails."""
    DOES_NOT_HELP = "does not help"
    NOT_TRIED = "not tried"


class FixAttempt(Record):
    """A fix that is a change of variables, tried in a new interpreter with nothing else changed."""

    change: dict[str, str | None]
    """Variable to value; None: unset."""
    outcome: TrialOutcome = TrialOutcome.NOT_TRIED
    detail: str = ""


class RootCause(Record):
    """Why TensorFlow does not use a GPU, or not as meant; and the line that fixes it."""

    cause_id: str
    """The name of the cause; ``gpudiag explain`` knows it."""
    stage: Stage
    confidence: Confidence
    cause: str
    """One sentence."""
    evidence: tuple[str, ...]
    """What was seen on this machine that shows it."""
    fix: tuple[Action, ...]
    """What to do on this machine, the recommended action first."""
    url: str
    """Documentation of the subject."""
    trial: FixAttempt | None = None
    """Of the action of the fix that has the same change; None if no action can be tried."""
    unfit: bool = False
    """True: while it is proved, a GPU that it is about must not be relied on, whatever the probes verified."""
    gpus: tuple[str, ...] = ()
    """PCI bus ids of the GPUs that it is about; empty: of every GPU, or it is not known which."""
    about: tuple[str, ...] = ()
    """The variables, libraries, files and folders that it is about, by their names."""
    explains: tuple[str, ...] = ()
    """The messages of the program's log that it explains, by their names."""


class Failed(Record):
    """A part of the diagnosis that gpudiag itself broke, or that took too long."""

    part: str
    """The cause that was looked for, or another part of the diagnosis."""
    why: str


class EnvironmentChange(Record):
    """A change of the environment without which TensorFlow does not get its GPU."""

    name: str
    """The variable, the entry of a list, the flag, the file or the folder that matters."""
    what: str
    """The change in a few words, such as ``entry 3 of LD_LIBRARY_PATH (/opt/x)``."""
    fix: Action | None = None
    """None if the action of another change is for both, or if the search was cut short."""
    origin: str = ""
    """The file that sets the variable, if one was found."""
    missing: bool = False
    """True: it is to be added; else it is in the way."""


class BisectionOutcome(str, Enum):
    """What came of trying other environments."""

    FOUND = "found"
    """Without the changes it fails, with them it works, and with fewer it does not."""
    CUT_SHORT = "cut short"
    """TensorFlow works with the changes, but some of them may not be needed."""
    NOT_THE_ENVIRONMENT = "not the environment"
    """TensorFlow fails in a clean environment, too."""
    NOT_REPRODUCED = "not reproduced"
    """The fault does not appear in a new interpreter."""
    OUT_OF_TIME = "out of time"


class Bisection(Record):
    """What came of trying TensorFlow in other environments, each in a new interpreter."""

    outcome: BisectionOutcome
    changes: tuple[EnvironmentChange, ...] = ()
    before: str = ""
    """How far it came in the environment as it is."""
    after: str = ""
    """How far it came with the changes."""
    wanted: int = 0
    """The GPUs that it had to list; 0: on a machine without a GPU, where it had only to be imported."""
    tried: int = 0
    """Interpreters that were started."""
    seconds: float = 0.0
    untried: tuple[str, ...] = ()
    """What files of this machine set and was not tried, because another user can have written it; each with why."""


class Diagnosis(Record):
    """What was found out from a report: the stages, and the causes, the first one first."""

    steps: tuple[Step, ...] = ()
    causes: tuple[RootCause, ...] = ()
    """Of the first stage that failed: why no GPU is used. If none failed, the configuration problems."""
    folded: tuple[RootCause, ...] = ()
    """Causes of later stages: they follow from the first, or are next once it is fixed."""
    harmless: tuple[str, ...] = ()
    """Lines that look like errors but are not, each with the reason."""
    misleading: tuple[str, ...] = ()
    """Lines that name a wrong cause, each with what it really means."""
    failed: tuple[Failed, ...] = ()
    """What could not be examined: a cause may be missing here."""
    origin: str = ""
    """What the program's log says about where it was written: the release of TensorFlow, the system; "" if nothing."""
    unexplained: tuple[str, ...] = ()
    """If no cause was found: the lines of the program's log that look most like a fault."""
    bisection: Bisection | None = None
    """None: the environment was not bisected."""

    @property
    def proved(self) -> tuple[RootCause, ...]:
        """The causes that are certain, of any stage."""
        return tuple(cause for cause in (*self.causes, *self.folded) if cause.confidence is Confidence.PROVED)

    @property
    def broken_at(self) -> Stage | None:
        """The first stage that failed."""
        return next((step.stage for step in self.steps if step.status is StepStatus.FAILED), None)
