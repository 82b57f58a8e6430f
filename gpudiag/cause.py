"""The contract of a cause: its name, the evidence that it is given, and what it reports.

A cause is a file, ``gpudiag/causes/<stage>/<name>.py``. The folder names the first stage that the cause breaks; the
file name is the cause's name. Its docstring begins with the cause in one sentence, as the manual has it. The rest is
for ``gpudiag explain``: how it comes about, what users see, what misleads. ``CAUSE`` has the same sentence with the
figures of a match, and the fix; ``find`` looks::

    def find(driver: DriverFacts, program: Program, nvml: NvmlFacts | None) -> Matches: ...

``find_in_log``, if there is one, looks in a program's log for what ``find`` did not see in the facts.

The types of its parameters say which evidence it is given (:data:`GIVEN`). It is not called while some of that evidence
is unknown, unless the type says ``| None``: then it is given None. It judges causes, not the texts of examples: a
message of a log is evidence only if nothing else shows the fault. Examples are in ``tests/examples/``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import Any, TypeVar, get_args, get_type_hints

from gpudiag import fix, provenance
from gpudiag.fix import Action, Kind, Role, Where, complete_first, fill_in
from gpudiag.knowledge import owner
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
    KernelFacts,
    LibraryFacts,
    NvmlFacts,
    SystemFacts,
    TensorflowFacts,
    TriedFacts,
    Unknown,
)
from gpudiag.model.missing import working_brothers
from gpudiag.model.program import ProgramTrace
from gpudiag.model.report import Figure, Finding, Gpu, Judged, Limits, Row, Severity
from gpudiag.place import Place, fitted_all
from gpudiag.probe import Reading
from gpudiag.probes.discovery import trace

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
        """Return the readings of the probe, on any device, except those of another version of the probe."""
        of_probe = (row.reading for row in self if row.probe == probe and isinstance(row.outcome, Judged))
        return tuple(reading for reading in of_probe if isinstance(reading, kind))


class LogAlone(Program):
    """The program's log if the machine that wrote it is unknown. Otherwise facts are better evidence."""


_ENDS = 2000
"""So many lines from each end of a log are looked at for the place where it was written."""


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
    """The limits that the caller demands."""
    bisection: Bisection | None = None
    """The result of trying other environments, if that found something."""
    traced: ProgramTrace | None = None
    """What the user's program did with its GPUs, if gpudiag ran it."""

    @cached_property
    def place(self) -> Place:
        """Where the actions of fixes are done."""
        if not (self.is_log_alone and self.lines):
            return Place.of(self.facts)
        runtimes = {"apptainer": self.origin.singularity, "kubernetes": self.origin.pod}
        container = next((name for name, is_there in runtimes.items() if is_there), None)
        ends = (*self.lines[:_ENDS], *self.lines[max(_ENDS, len(self.lines) - _ENDS) :])
        return Place.of_log("\n".join(ends), container=container)

    @cached_property
    def trace(self) -> trace.Reading | None:
        """The reading of ``discovery.trace``, which lists GPUs as the user's programs do; None if there is none."""
        return next(iter(Rows(self.rows).readings(TRACE, trace.Reading)), None)

    @cached_property
    def program(self) -> Program:
        """The log of the user's own program; lines that are no evidence are blank."""
        return Program(evidence_lines(self.lines))

    @cached_property
    def origin(self) -> Origin:
        """What is known about the origin of the user's program's log."""
        facts = self.facts.tensorflow
        installed = () if isinstance(facts, Unknown) else facts.distributions
        return Origin(self.lines, installed[0].version if installed else "")

    @property
    def is_log_alone(self) -> bool:
        """True if nothing is known of the machine that wrote the log; then nothing is said of this machine either."""
        return isinstance(self.facts.system, Unknown) and isinstance(self.facts.driver, Unknown) and not self.rows

    @cached_property
    def log_alone(self) -> LogAlone | None:
        """The log of the user's own program if nothing is known of the machine that wrote it."""
        return LogAlone(self.program.lines) if self.is_log_alone else None

    @cached_property
    def listing(self) -> Listing:
        """The lines that TensorFlow printed when it was started as the user's own programs are."""
        return Listing(line.text for line in self.trace.lines) if self.trace is not None else Listing(())

    @cached_property
    def log(self) -> EveryLog:
        """All log lines: those of the user's program and of each child."""
        return EveryLog((*self.program.lines, *(line for row in self.rows for line in row.log)))

    @cached_property
    def unprovoked(self) -> Unprovoked:
        """The log lines of the user's program and of discovery's probes, which provoke no fault."""
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
    KernelFacts: lambda evidence: evidence.facts.kernel,
    LibraryFacts: lambda evidence: evidence.facts.libraries,
    NvmlFacts: lambda evidence: evidence.facts.nvml,
    SystemFacts: lambda evidence: evidence.facts.system,
    TensorflowFacts: lambda evidence: evidence.facts.tensorflow,
    TriedFacts: lambda evidence: evidence.facts.tried,
    trace.Reading: lambda evidence: evidence.trace,
    ProgramTrace: lambda evidence: evidence.traced,
}
"""The evidence for each type of parameter. ``Unknown`` and None stand for evidence that is not known.

Any other type has a class method ``of``, which derives a value that several causes use from the evidence, or None.
There is no type for all evidence, so that the parameters of a cause show what it depends on.
"""


_LOGS = {Program, EveryLog, Unprovoked, LogAlone, Origin}
"""The types of logs, and of what is known about them."""


class Premise(str, Enum):
    """What a cause assumes about TensorFlow's devices; two causes with opposite assumptions are not shown together."""

    GPU_IN_USE = "a GPU is in use"
    NO_GPU = "no GPU is in use"
    NONE = "nothing"


Fix = tuple[Action | None, ...]
"""The fix of a match. A text is an action that the cause declares, filled in with the match's figures; None is left
out."""


@dataclass(frozen=True)
class Match:
    """A cause was found."""

    evidence: tuple[str, ...]
    """The lines of evidence, each readable on its own."""
    confidence: Confidence = Confidence.PROVED
    figures: dict[str, Figure] = field(default_factory=dict)
    """The values that are put into the texts of the cause."""
    tried: Action | None = None
    """The action of the fix that is tried on this machine: it only changes environment variables."""
    stage: Stage | None = None
    """The first stage that the cause breaks on this machine, if it differs from the cause's own."""
    fix: Fix = ()
    """The fix on this machine, in place of the cause's own; empty if the cause's own applies."""
    url: str = ""
    """The URL of a page about this match, if it differs from the cause's own."""
    gpus: tuple[str, ...] = ()
    """PCI bus ids of the GPUs that are affected; empty if every GPU is, or if it is not known which."""
    unfit: bool | None = None
    """Overrides :attr:`Cause.unfit`; None leaves the cause's own value."""
    about: tuple[str, ...] = ()
    """The names of the variables, libraries, files, folders and flags concerned, except those that are figures, and
    variables that :attr:`tried` changes."""
    explains: Iterable[Event] = ()
    """Events of the program's log that the match explains, besides those of its lines of evidence. Causes that these
    events alone suggest are not shown."""


Matches = Iterator[Match]


@dataclass(frozen=True, kw_only=True)
class Cause:
    """The declaration of a cause."""

    fix: tuple[Action, ...]
    """The actions that fix the cause, the best first; their texts are format strings over the figures of a match.
    ``gpudiag explain`` shows them, and a report does unless the match has its own :attr:`Match.fix`."""
    url: str
    title: str = ""
    """The sentence of a report, a format string over the figures of a match; empty if it is the docstring's."""
    unfit: bool = False
    """True if the affected GPUs must not be relied on while the cause is proved, even if every probe passes: broken
    hardware, a missing licence, a library without some of its files. The verdict is then FAIL. The stage does not imply
    it: a GPU with faulty memory still computes."""
    severity: Severity = Severity.FAIL
    finding: str = ""
    """``host.<row>.<kind>``: the row of the host that shows the cause, and its name in that row, stable since schema 1.
    Rows of the host show the causes that are found in the facts alone."""
    row_only: bool = False
    """True if the cause is shown only in its row of the host, not in the diagnosis: a sign that other causes explain,
    or a fact worth knowing although TensorFlow works."""
    views: tuple[str, ...] = ()
    """Other findings, as ``<area>.<probe>.<kind>``, that this cause explains: if it is found, they show its command."""
    unless: Mapping[str, str] = field(default_factory=dict)
    """More specific causes, each with the reason: if one of them is found, this cause is not reported."""
    needs_gpu: bool = True
    """False if the cause is possible even if no NVIDIA GPU can be seen, as in a container that was given none."""
    last_resort: bool = False
    """True if the cause is used only when no other cause is found: it summarizes what is known. A report has one."""
    general: bool = False
    """True if the cause only repeats what a message of the log says. A match whose evidence begins with a line is not
    shown if a more specific cause looks for that message or shows that line."""
    premise: Premise | None = None
    """What the cause assumes about TensorFlow's devices, if its stage does not imply it: before TensorFlow has made
    devices no GPU is in use; the stages of GPU memory and of operations need a GPU."""
    symptom: bool = False
    """True if the cause is usually a consequence of another. It is hidden if a cause of its own or an earlier stage, or
    one that :attr:`unless` names, was found; otherwise it comes last in its stage."""


def _is_of_the_host(action: Action) -> bool:
    return action.where is Where.HERE and action.kind.is_of_the_host


def _beside_brothers(actions: list[Action], gpus: tuple[str, ...], facts: Facts) -> list[Action]:
    """Return the actions for GPUs that do not start beside others of their model that do: another driver is none.

    The others can be used meanwhile. That a fault goes with the card into another slot, or stays with the slot, tells
    which of both is to be replaced.
    """
    brothers = [brother for gpu in gpus for brother in working_brothers(facts, gpu)]
    if not gpus or not all(working_brothers(facts, gpu) for gpu in gpus):
        return actions
    others = ",".join(dict.fromkeys(device.uuid for device in facts.nvml_devices))
    first = fix.export("CUDA_VISIBLE_DEVICES", others, "uses the others until it is repaired")
    exchange = fix.note(
        f"switch the machine off and on; if it stays so, exchange it with GPU {brothers[0].index}: a fault that goes "
        "with the card is the card's, else it is the slot's or the power's",
        kind=Kind.REPLACE_HARDWARE,
    )
    kept = [action for action in actions if action.kind not in (Kind.CHANGE_DRIVER, Kind.REPLACE_HARDWARE)]
    restart = [action for action in kept if action.kind is Kind.REBOOT]
    return [first, exchange, *(action for action in kept if action not in restart), *restart]


def _of_these(actions: list[Action], gpus: tuple[str, ...]) -> list[Action]:
    """Return the actions; a reset is that of the GPUs which the cause names, by their PCI bus ids."""
    return [
        fix.reset_gpu(",".join(gpus), action.note, role=action.role)
        if gpus and action.kind is Kind.RESET_GPU
        else action
        for action in actions
    ]


def _set_by_python(name: str, file: str) -> Action:
    """Return how to remove a variable that ``file`` sets whenever Python starts; ``file`` is "" if it is not known."""
    if file == PRELOAD:
        note = f"a library of {PRELOAD} sets it in every program"
        return Action(f"unset {PRELOAD} {name}", note, kind=Kind.SET_VARIABLE, change={PRELOAD: None, name: None})
    if file == PRELOAD_FILE:
        return fix.check(f"cat {file}", f"take out the library that sets {name} in every program")
    where = file or "the sitecustomize.py, usercustomize.py or .pth file"
    return fix.note(f"take {name} out of {where}, which sets it whenever Python starts", kind=Kind.SET_VARIABLE)


def _with_provenance(
    match: Match, facts: Facts, seen: tuple[str, ...], actions: list[Action]
) -> tuple[tuple[str, ...], list[Action]]:
    """Return evidence and actions with the places that set what the actions take away: a shell changes it for now."""
    known = facts.environment
    if isinstance(known, Unknown) or not known.provenance:
        return seen, actions
    lines: list[str] = []
    complete: list[Action] = []
    for action in actions:
        complete.append(action)
        change = {} if action.change is None or action.role is Role.CHECK else action.change
        for found in provenance.of_change(known, change, match.about):
            if (line := provenance.sentence(found)) not in lines:
                lines.append(line)
                complete.append(provenance.removal(found))
    return (*seen, *lines), complete


def _distinct(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def _names(figures: Mapping[str, Figure]) -> Iterator[str]:
    """Yield the figures that are names: of variables, libraries, files and the like; no sentences and no numbers."""
    return (value for value in figures.values() if isinstance(value, str) and value and " " not in value)


@dataclass(frozen=True)
class CatalogueCause:
    """A cause of the catalogue: its declaration, and what the path and the docstring of its file say."""

    id: str
    stage: Stage
    """The first stage that the cause breaks."""
    general_cause: str
    """One sentence, without the figures of any machine."""
    why: str
    """The paragraph for ``gpudiag explain``, on one line."""
    declared: Cause
    find: Callable[..., Matches]
    find_in_log: Callable[..., Matches] | None = None

    @cached_property
    def in_log(self) -> CatalogueCause | None:
        """The same cause, found in a program's log alone; None if its file has no function for that."""
        return None if self.find_in_log is None else replace(self, find=self.find_in_log, find_in_log=None)

    def matches(self, evidence: Evidence) -> Matches:
        """Look for the cause; all evidence that its parameters ask for must be known."""
        arguments: list[Any] = []
        for kind, is_optional in self._asked_for:
            evidence_part = (GIVEN.get(kind) or kind.of)(evidence)
            arguments.append(None if isinstance(evidence_part, Unknown) else evidence_part)
            if arguments[-1] is None and not is_optional:
                return
        yield from self.find(*arguments)

    @cached_property
    def _asked_for(self) -> tuple[tuple[Any, bool], ...]:
        """The types of the parameters of ``find``, each with whether None is allowed."""
        hints = get_type_hints(self.find)
        kinds = [get_args(hints[name]) or (hints[name],) for name in inspect.signature(self.find).parameters]
        return tuple((kind[0], len(kind) > 1) for kind in kinds)

    @property
    def asks_for_facts(self) -> bool:
        """True if the parameters of ``find`` ask for more than logs."""
        return not {kind for kind, _ in self._asked_for} <= _LOGS

    def causes(self, evidence: Evidence) -> Iterator[RootCause]:
        """Yield a cause for each match."""
        return (self.cause_of(match, evidence) for match in self.matches(evidence))

    def cause_of(self, match: Match, evidence: Evidence) -> RootCause:
        """Return the cause that a match stands for, on the machine of this evidence."""
        declared = self.declared
        chosen = [action for action in match.fix or declared.fix if action is not None]
        actions = [fill_in(action, match.figures) if action in declared.fix else action for action in chosen]
        if not isinstance(evidence.facts.container, Unknown) and evidence.facts.container.name is not None:
            actions = [action.replaced(where=Where.HOST) if _is_of_the_host(action) else action for action in actions]
        tried = None if match.tried is None else actions[chosen.index(match.tried)]
        actions = _beside_brothers(actions, match.gpus, evidence.facts)
        actions = _of_these(actions, match.gpus)
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
        seen, actions = _with_provenance(match, evidence.facts, seen, actions)
        url = match.url or declared.url
        stage, said = match.stage or self.stage, self.cause.format_map(match.figures)
        by = evidence.origin.owner_of(next(iter(seen), "")) if evidence.lines and evidence.is_log_alone else None
        if by is not None and by is not owner.TENSORFLOW:
            said = owner.sentence(by, said)
            actions = [*owner.actions(by, actions, stage, "\n".join((said, *seen)))]
            url = owner.page(by, url)
        quoted = (event for line in seen for event in recognised(line))
        return RootCause(
            cause_id=self.id,
            stage=stage,
            confidence=match.confidence,
            cause=said,
            evidence=seen,
            fix=complete_first(fitted_all(actions, evidence.place)),
            url=url,
            trial=trial,
            unfit=declared.unfit if match.unfit is None else match.unfit,
            gpus=match.gpus,
            about=_distinct((*match.about, *change, *_names(match.figures))),
            explains=_distinct(event.message.name for event in (*match.explains, *quoted)),
        )

    @property
    def row(self) -> str:
        """The row of the host that shows the cause, such as ``host.environment``; "" if none does."""
        return self.declared.finding.rpartition(".")[0]

    @property
    def kind(self) -> str:
        """The name of the cause in its row of the report."""
        return self.declared.finding.rpartition(".")[2]

    @property
    def url(self) -> str:
        return self.declared.url

    @property
    def cause(self) -> str:
        """The sentence of a report, a format string over the figures of a match."""
        return self.declared.title or self.general_cause

    @property
    def general_fix(self) -> tuple[Action, ...]:
        """The actions of the fix, with the names of their figures in angle brackets."""
        return tuple(map(fix.with_names, self.declared.fix))
