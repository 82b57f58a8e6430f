"""The contract of a cause: what it is called, what it is given to look at, and what it says.

A cause is a file, ``gpudiag/causes/<stage>/<name>.py``. The folder is the first stage that it breaks; the name of the
file is its name. Its docstring begins with the cause in one sentence, a format string over the figures of a match. The
rest is for ``gpudiag explain``: how it comes about, what users see, what misleads. ``CAUSE`` has the fix, and ``find``
looks::

    def find(driver: DriverFacts, program: Program, nvml: NvmlFacts | None) -> Matches: ...

It is given what the types of its parameters ask for (:data:`GIVEN`), and is not called while one of them is not known,
unless the type says ``| None``: then it is given None. It judges causes, not the texts of examples: a message of a log
is evidence only if nothing else shows the fault.
Examples are in ``tests/examples/``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any, TypeVar, get_args, get_type_hints

from gpudiag import fix
from gpudiag.fix import Action, Kind, Role, Where, fill_in
from gpudiag.knowledge.log import recognised
from gpudiag.knowledge.log_lines import Log
from gpudiag.knowledge.message import Event
from gpudiag.knowledge.origin import Origin
from gpudiag.knowledge.relevance import evidence_lines
from gpudiag.knowledge.variables import PRELOAD, PRELOAD_FILE
from gpudiag.model.diagnosis import Bisection, Confidence, FixAttempt, RootCause, Stage
from gpudiag.model.facts import (
    CallFacts,
    ContainerFacts,
    CudaFacts,
    DeviceNodeFacts,
    DriverFacts,
    EnvironmentFacts,
    Facts,
    LibraryFacts,
    NvmlFacts,
    SystemFacts,
    TensorflowFacts,
    TriedFacts,
    Unknown,
)
from gpudiag.model.program import ProgramTrace
from gpudiag.model.report import Figure, Finding, Gpu, Judged, Limits, Row, Severity
from gpudiag.probe import Reading
from gpudiag.probes.discovery import trace
from gpudiag.text import with_names

TRACE = "discovery.trace"

_R = TypeVar("_R", bound=Reading)


class Variables(dict[str, str]):
    """The environment variables that gpudiag knows."""


class Program(Log):
    """The log of the user's own program; empty if none was given."""


class EveryLog(Log):
    """Every line of every log: of the user's program, and of each child."""


class Unprovoked(Log):
    """The lines of the user's program, and those of discovery's probes, which provoke no fault."""


class Listing(Log):
    """What TensorFlow printed when it was started as the user's own programs are."""


class Gpus(tuple[Gpu, ...]):
    """The GPUs in scope."""

    __slots__ = ()


class Rows(tuple[Row, ...]):
    """The rows of the report."""

    __slots__ = ()

    def found(self, probe: str, kind: str) -> tuple[Finding, ...]:
        """Return the findings of this kind that the probe made, on any device."""
        return tuple(finding for row in self if row.probe == probe for finding in row.findings if finding.kind == kind)

    def readings(self, probe: str, kind: type[_R]) -> tuple[_R, ...]:
        """Return the readings of the probe, on any device, but those of another version of it."""
        of_probe = (row.reading for row in self if row.probe == probe and isinstance(row.outcome, Judged))
        return tuple(reading for reading in of_probe if isinstance(reading, kind))


class LogAlone(Program):
    """The program's log if the machine that wrote it is unknown. Otherwise facts are better evidence."""


@dataclass(frozen=True)
class Evidence:
    """All that is known when causes are looked for."""

    facts: Facts
    gpus: tuple[Gpu, ...] = ()
    """The GPUs in scope."""
    rows: tuple[Row, ...] = ()
    lines: tuple[str, ...] = ()
    """The lines of the log of the user's own program; empty if none was given."""
    limits: Limits = field(default_factory=Limits)
    """What the caller demands."""
    bisection: Bisection | None = None
    """What came of trying other environments, if that found something."""
    traced: ProgramTrace | None = None
    """What the user's program did, if gpudiag ran it."""

    @cached_property
    def trace(self) -> trace.Reading | None:
        """How TensorFlow's listing went, started as the user's own programs are; None if it gave no reading."""
        return next(iter(Rows(self.rows).readings(TRACE, trace.Reading)), None)

    @cached_property
    def program(self) -> Program:
        """The log of the user's own program: its lines, those that are no evidence left blank."""
        return Program(evidence_lines(self.lines))

    @cached_property
    def origin(self) -> Origin:
        """What is known about the origin of that log."""
        facts = self.facts.tensorflow
        installed = () if isinstance(facts, Unknown) else facts.distributions
        return Origin(self.lines, installed[0].version if installed else "")

    @property
    def is_log_alone(self) -> bool:
        """True: nothing is known of the machine that wrote the log, so nothing is said of this one."""
        return isinstance(self.facts.system, Unknown) and isinstance(self.facts.driver, Unknown) and not self.rows

    @cached_property
    def log_alone(self) -> LogAlone | None:
        """The log of the user's own program if nothing is known of the machine that wrote it."""
        return LogAlone(self.program.lines) if self.is_log_alone else None

    @cached_property
    def listing(self) -> Listing:
        """What TensorFlow printed when it was started as the user's own programs are."""
        return Listing(line.text for line in self.trace.lines) if self.trace is not None else Listing(())

    @cached_property
    def log(self) -> EveryLog:
        """Every line that there is: of the user's program, and of each child."""
        return EveryLog((*self.program.lines, *(line for row in self.rows for line in row.log)))

    @cached_property
    def unprovoked(self) -> Unprovoked:
        """Of the log: the lines of the user's program, and of discovery's probes, which provoke no fault."""
        of_discovery = (line for row in self.rows if row.area == "discovery" for line in row.log)
        return Unprovoked((*self.program.lines, *of_discovery))


GIVEN: dict[type, Callable[[Evidence], Any]] = {
    Facts: lambda evidence: evidence.facts,
    Limits: lambda evidence: evidence.limits,
    Bisection: lambda evidence: evidence.bisection,
    Program: lambda evidence: evidence.program,
    EveryLog: lambda evidence: evidence.log,
    Unprovoked: lambda evidence: evidence.unprovoked,
    Listing: lambda evidence: evidence.listing,
    Gpus: lambda evidence: Gpus(evidence.gpus),
    Rows: lambda evidence: Rows(evidence.rows),
    LogAlone: lambda evidence: evidence.log_alone,
    Origin: lambda evidence: evidence.origin,
    Variables: lambda evidence: Variables(evidence.facts.variables),
    CudaFacts: lambda evidence: evidence.facts.cuda,
    CallFacts: lambda evidence: evidence.facts.calls,
    ContainerFacts: lambda evidence: evidence.facts.container,
    DeviceNodeFacts: lambda evidence: evidence.facts.device_nodes,
    DriverFacts: lambda evidence: evidence.facts.driver,
    EnvironmentFacts: lambda evidence: evidence.facts.environment,
    LibraryFacts: lambda evidence: evidence.facts.libraries,
    NvmlFacts: lambda evidence: evidence.facts.nvml,
    SystemFacts: lambda evidence: evidence.facts.system,
    TensorflowFacts: lambda evidence: evidence.facts.tensorflow,
    TriedFacts: lambda evidence: evidence.facts.tried,
    trace.Reading: lambda evidence: evidence.trace,
    ProgramTrace: lambda evidence: evidence.traced,
}
"""What the type of a parameter asks for; ``Unknown`` and None are what is not known.

Any other type has a class method ``of``, which makes of the evidence what several causes look at, or None. There is no
type for all of the evidence: the parameters of a cause say what it rests on.
"""


_LOGS = {Program, EveryLog, Unprovoked, LogAlone, Origin}
"""The types that are logs, and what is known of them."""


class Premise(str, Enum):
    """What a cause presupposes of TensorFlow's devices; two that presuppose opposite things are not shown together."""

    GPU_IN_USE = "a GPU is in use"
    NO_GPU = "no GPU is in use"
    NONE = "nothing"


Fix = tuple[Action | None, ...]
"""An action that the cause declares is filled in with the figures of the match, any other is complete; None is left
out."""


@dataclass(frozen=True)
class Match:
    """A cause was found."""

    evidence: tuple[str, ...]
    """What was seen, each a line for a person."""
    confidence: Confidence = Confidence.PROVED
    figures: dict[str, Figure] = field(default_factory=dict)
    """Put into the texts of the cause."""
    tried: Action | None = None
    """The action of the fix that is tried on this machine: it changes variables."""
    stage: Stage | None = None
    """The first stage that it breaks on this machine, if that is not the cause's own."""
    fix: Fix = ()
    """The fix on this machine, in place of the cause's own; empty if they are the same."""
    url: str = ""
    """A page about it, if that is not the cause's own."""
    gpus: tuple[str, ...] = ()
    """PCI bus ids of the GPUs that it is about; empty: of every GPU, or it is not known which."""
    unfit: bool | None = None
    """Overrides :attr:`Cause.unfit`; None: as the cause declares."""
    about: tuple[str, ...] = ()
    """The variables, libraries, files, folders and flags that it is about, by name: those that are not figures, nor
    variables that :attr:`tried` changes."""
    explains: Iterable[Event] = ()
    """Events of the program's log that it explains, beside the messages of the lines that it shows as evidence: what
    these events name by themselves is not shown as another cause."""


Matches = Iterator[Match]


@dataclass(frozen=True, kw_only=True)
class Cause:
    """What a cause declares."""

    fix: tuple[Action, ...]
    """What to do, the best first; format strings over the figures of a match. What ``gpudiag explain`` shows, and,
    unless :attr:`Match.fix` says otherwise, a report."""
    url: str
    unfit: bool = False
    """True: while it is proved, a GPU in scope that it is about must not be relied on, though every probe passes:
    hardware that has to be replaced, a licence that is missing, a library that lacks files. The verdict is FAIL then.
    It does not follow from the stage: faulty memory is found beside a GPU that computes."""
    severity: Severity = Severity.FAIL
    finding: str = ""
    """``host.<row>.<kind>``: the row of the host that shows it, and its name there; reports have had that name since
    schema 1. A row of the host is a view: of the causes that the facts alone show."""
    row_only: bool = False
    """True: it is shown in that row and not in the diagnosis. It is a sign that other causes explain, or worth knowing
    though TensorFlow works."""
    views: tuple[str, ...] = ()
    """Other findings, as ``<area>.<probe>.<kind>``, that this explains: if it is found, they give its command."""
    unless: Mapping[str, str] = field(default_factory=dict)
    """Causes that say more, and why: if one of them is found, this one is not."""
    needs_gpu: bool = True
    """False: it may be the cause if no NVIDIA GPU can be seen, too, as in a container that was given none."""
    last_resort: bool = False
    """True: it says what is known if no other cause is found, and counts only there."""
    general: bool = False
    """True: it says what a message of the log says by itself. A cause that looks for that message, or shows that line,
    says more: if one is found, a match of this one whose evidence begins with the line is not."""
    premise: Premise | None = None
    """What it presupposes of TensorFlow's devices, if that does not follow from the stage that it breaks: before
    there are devices no GPU is in use; memory of a GPU and an operation on it need one."""
    symptom: bool = False
    """True: it follows from another cause. If one was found that breaks the same stage or an earlier one, or that
    :attr:`unless` names, it is not shown; otherwise it comes after the others of its stage."""


def _is_of_the_host(action: Action) -> bool:
    return action.where is Where.HERE and action.kind.is_of_the_host


def _set_by_python(name: str, file: str) -> Action:
    """Return how to remove a variable that is set whenever Python starts, by ``file`` ("" if it is not known)."""
    if file == PRELOAD:
        note = f"a library of {PRELOAD} sets it in every program"
        return Action(f"unset {PRELOAD} {name}", note, kind=Kind.SET_VARIABLE, change={PRELOAD: None, name: None})
    if file == PRELOAD_FILE:
        return Action(f"cat {file}", f"take out the library that sets {name} in every program", Role.CHECK)
    where = file or "the sitecustomize.py, usercustomize.py or .pth file"
    return Action(note=f"take {name} out of {where}, which sets it whenever Python starts", role=Role.NOTE)


def _distinct(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def _names(figures: Mapping[str, Figure]) -> Iterator[str]:
    """Yield the names among the figures: of a variable, a library, a file and the like; no sentence, no number."""
    return (value for value in figures.values() if isinstance(value, str) and value and " " not in value)


@dataclass(frozen=True)
class Known:
    """A cause of the catalogue: what its file declares and what the place and the text of the file say."""

    id: str
    stage: Stage
    """The first stage that it breaks."""
    cause: str
    """One sentence, a format string over the figures of a match."""
    why: str
    """The paragraph for ``gpudiag explain``, on one line."""
    declared: Cause
    find: Callable[..., Matches]

    def matches(self, evidence: Evidence) -> Matches:
        """Look for the cause; what it asks for must be known."""
        given: list[Any] = []
        for kind, is_optional in self._asked_for:
            evidence_part = (GIVEN.get(kind) or kind.of)(evidence)
            given.append(None if isinstance(evidence_part, Unknown) else evidence_part)
            if given[-1] is None and not is_optional:
                return
        yield from self.find(*given)

    @cached_property
    def _asked_for(self) -> tuple[tuple[Any, bool], ...]:
        """The types of the parameters, and of each whether it may be None."""
        hints = get_type_hints(self.find)
        kinds = [get_args(hints[name]) or (hints[name],) for name in inspect.signature(self.find).parameters]
        return tuple((kind[0], len(kind) > 1) for kind in kinds)

    @property
    def asks_for_facts(self) -> bool:
        """True if it asks for more than logs."""
        return not {kind for kind, _ in self._asked_for} <= _LOGS

    def causes(self, evidence: Evidence) -> Iterator[RootCause]:
        """Yield a cause for each match."""
        return (self.cause_of(match, evidence) for match in self.matches(evidence))

    def cause_of(self, match: Match, evidence: Evidence) -> RootCause:
        """Return the cause that a match is on the machine of this evidence."""
        declared = self.declared
        chosen = [action for action in match.fix or declared.fix if action is not None]
        actions = [fill_in(action, match.figures) if action in declared.fix else action for action in chosen]
        if not isinstance(evidence.facts.container, Unknown) and evidence.facts.container.name is not None:
            actions = [action.replaced(where=Where.HOST) if _is_of_the_host(action) else action for action in actions]
        tried = None if match.tried is None else actions[chosen.index(match.tried)]
        change = (tried and tried.change) or {}
        trial = FixAttempt(change) if change else None
        seen = match.evidence
        inside = evidence.facts.set_by_python
        for name in change.keys() & inside.keys():  # then no shell can change it
            first = _set_by_python(name, inside[name])
            actions = [first if action is tried else action for action in actions]
            actions = [action for action in actions if action is first or (action.change or {}).get(name) is None]
            tried = first
            if inside[name] == PRELOAD:
                seen = (*seen, f"{PRELOAD}={evidence.facts.variables.get(PRELOAD, '')}")
            seen = (*seen, f"{name} is set in a Python that was started without it, too")
            trial = None if first.change is None else FixAttempt(first.change)
        quoted = (event for line in seen for event in recognised(line))
        return RootCause(
            cause_id=self.id,
            stage=match.stage or self.stage,
            confidence=match.confidence,
            cause=self.cause.format_map(match.figures),
            evidence=seen,
            fix=tuple(actions),
            url=match.url or declared.url,
            trial=trial,
            unfit=declared.unfit if match.unfit is None else match.unfit,
            gpus=match.gpus,
            about=_distinct((*match.about, *change, *_names(match.figures))),
            explains=_distinct(event.message.name for event in (*match.explains, *quoted)),
        )

    @property
    def row(self) -> str:
        """The row of the host that shows it, such as ``host.environment``; "" for none."""
        return self.declared.finding.rpartition(".")[0]

    @property
    def kind(self) -> str:
        """The name of the cause in its row of the report."""
        return self.declared.finding.rpartition(".")[2]

    @property
    def url(self) -> str:
        return self.declared.url

    @property
    def general_cause(self) -> str:
        """The cause, with the names of the figures in angle brackets in their place."""
        return with_names(self.cause)

    @property
    def general_fix(self) -> tuple[Action, ...]:
        """The fix likewise."""
        return tuple(map(fix.with_names, self.declared.fix))
