"""The contract of a cause: what it is called, what it is given to look at, and what it says.

A cause is a file, ``gpudiag/causes/<stage>/<name>.py``. The folder is the first stage that it breaks; the name of the
file is its name. Its docstring begins with the cause in one sentence, a format string over the figures of a match. The
rest is for ``gpudiag explain``: how it comes about, what users see, what misleads. ``CAUSE`` has the fix, and ``find``
looks::

    def find(evidence: Evidence, driver: DriverFacts, program: Program) -> Matches: ...

It is given what the types of its parameters ask for (:data:`GIVEN`), and is not called while one of them is not known.
It judges causes, not the texts of examples: a message of a log is evidence where nothing else shows the fault. Examples
are in ``tests/examples/``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar, get_type_hints

import msgspec

from gpudiag import catalogue
from gpudiag.hostfacts import (
    ContainerFacts,
    DeviceNodeFacts,
    DriverFacts,
    EnvironmentFacts,
    Facts,
    LibraryFacts,
    NvmlFacts,
    SystemFacts,
    TensorflowFacts,
    Unknown,
)
from gpudiag.knowledge.message import Message
from gpudiag.log import Log
from gpudiag.model import Figure, Finding, Gpu, Judged, Limits, RootCause, Row, Severity, Stage, Sure, Trial
from gpudiag.origin import Origin
from gpudiag.plaintext import with_names
from gpudiag.probe import Reading
from gpudiag.probes.discovery import trace

TRACE = "discovery.trace"

_R = TypeVar("_R", bound=Reading)


class Variables(dict[str, str]):
    """The environment variables that gpudiag knows."""


class Program(Log):
    """The log of the user's own program; empty where none was given."""


class LogAlone(Program):
    """The same where nothing is known of the machine that wrote it; else facts say more than its lines."""


@dataclass(frozen=True)
class Evidence:
    """All that a cause may look at."""

    facts: Facts
    gpus: tuple[Gpu, ...] = ()
    """The GPUs in scope."""
    rows: tuple[Row, ...] = ()
    lines: tuple[str, ...] = ()
    """Of the log of the user's own program, where it was given."""

    def found(self, probe: str, kind: str) -> tuple[Finding, ...]:
        """Return the findings of this kind that the probe makes, on any device.

        A probe of the host judges the facts, which are always here, whether or not it was chosen to be run.
        """
        if probe.startswith("host."):
            if probe not in self._of_the_host:
                self._of_the_host[probe] = catalogue.get(probe).judge(None, self.facts, Limits()).findings
            return tuple(one for one in self._of_the_host[probe] if one.kind == kind)
        return tuple(one for row in self.rows if row.probe == probe for one in row.findings if one.kind == kind)

    @cached_property
    def _of_the_host(self) -> dict[str, tuple[Finding, ...]]:
        return {}

    def readings(self, probe: str, kind: type[_R]) -> tuple[_R, ...]:
        """Return the readings of the probe, on any device; one that does not fit it, as of another version, is none."""
        found: list[_R] = []
        for row in self.rows:
            if row.probe == probe and row.reading is not None and isinstance(row.outcome, Judged):
                with suppress(msgspec.ValidationError):
                    found.append(msgspec.convert(row.reading, kind))
        return tuple(found)

    @cached_property
    def trace(self) -> trace.Reading | None:
        """How TensorFlow's listing went, started as the user's own programs are; None where it gave no reading."""
        return next(iter(self.readings(TRACE, trace.Reading)), None)

    @cached_property
    def program(self) -> Program:
        """The log of the user's own program."""
        return Program(self.lines)

    @cached_property
    def origin(self) -> Origin:
        """Where that log comes from."""
        facts = self.facts.tensorflow
        installed = () if isinstance(facts, Unknown) else facts.distributions
        return Origin(self.lines, installed[0].version if installed else "")

    @property
    def is_log_alone(self) -> bool:
        """True: nothing is known of the machine that wrote the log, so nothing is said of this one."""
        return isinstance(self.facts.system, Unknown) and isinstance(self.facts.driver, Unknown) and not self.rows

    @cached_property
    def listing(self) -> Log:
        """What TensorFlow said when it was started as the user's own programs are."""
        return Log(line.text for line in self.trace.lines) if self.trace is not None else Log(())

    @cached_property
    def log(self) -> Log:
        """Every line that there is: of the user's program, and of each child."""
        return Log((*self.lines, *(line for row in self.rows for line in row.log)))

    @cached_property
    def unprovoked(self) -> Log:
        """Of the log: the lines of the user's program, and of discovery's probes, which provoke no fault."""
        return Log((*self.lines, *(line for row in self.rows if row.area == "discovery" for line in row.log)))


GIVEN: dict[type, Callable[[Evidence], Any]] = {
    Evidence: lambda evidence: evidence,
    Facts: lambda evidence: evidence.facts,
    Program: lambda evidence: evidence.program,
    LogAlone: lambda evidence: LogAlone(evidence.lines) if evidence.is_log_alone else None,
    Origin: lambda evidence: evidence.origin,
    Variables: lambda evidence: Variables(evidence.facts.variables),
    ContainerFacts: lambda evidence: evidence.facts.container,
    DeviceNodeFacts: lambda evidence: evidence.facts.device_nodes,
    DriverFacts: lambda evidence: evidence.facts.driver,
    EnvironmentFacts: lambda evidence: evidence.facts.environment,
    LibraryFacts: lambda evidence: evidence.facts.libraries,
    NvmlFacts: lambda evidence: evidence.facts.nvml,
    SystemFacts: lambda evidence: evidence.facts.system,
    TensorflowFacts: lambda evidence: evidence.facts.tensorflow,
    trace.Reading: lambda evidence: evidence.trace,
}
"""What the type of a parameter asks for; ``Unknown`` and None are what is not known.

Any other type has a class method ``of``, which makes of the evidence what several causes look at, or None: then none of
them is called.
"""


@dataclass(frozen=True)
class Match:
    """A cause was found."""

    evidence: tuple[str, ...]
    """What was seen, each a line for a person."""
    sure: Sure = Sure.PROVED
    figures: dict[str, Figure] = field(default_factory=dict)
    """Put into the texts of the cause."""
    change: dict[str, str | None] | None = None
    """The line :attr:`Cause.tried` of the fix as a change of variables, where it is one: it is tried."""
    stage: Stage | None = None
    """The first stage that it breaks on this machine, where that is not the cause's own."""
    fix: tuple[str, ...] = ()
    """In place of the cause's own, with its figures put in."""
    url: str = ""
    """Where more is said of it, where that is not the cause's own."""


Matches = Iterator[Match]


@dataclass(frozen=True, kw_only=True)
class Cause:
    """What a cause declares."""

    fix: tuple[str, ...]
    """Commands or lines of code, format strings; in order. What is said of one stands after ``#``, and a line that
    begins with it is a sentence: each can be pasted. A line that comes out empty is left out."""
    url: str
    severity: Severity = Severity.FAIL
    views: tuple[str, ...] = ()
    """Findings, as ``<area>.<probe>.<kind>``, that tell of the same fault: where it is found they give its command."""
    unless: tuple[str, ...] = ()
    """Causes that say more: where one of them is found, this one is not."""
    tried: int = 0
    """Which line of the fix is the change of a match."""
    needs_gpu: bool = True
    """False: it may be the cause where no NVIDIA GPU can be seen, too, as in a container that was given none."""
    last_resort: bool = False
    """True: it says what is known where no other cause is found, and counts only there."""
    general: bool = False
    """True: it says what a message of the log says by itself. A cause that looks for that message, or shows that line,
    says more: where one is found, a match of this one whose evidence begins with the line is not."""
    symptom: bool = False
    """True: it follows from another cause, which comes before it where that was found."""
    shown: dict[str, str] = field(default_factory=dict)
    """For a line of the fix that is but a figure, and is another on each machine: what it may be."""


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
    reads: frozenset[Message] = frozenset()
    """The messages that its file names."""

    def matches(self, evidence: Evidence) -> Matches:
        """Look for the cause; what it asks for must be known."""
        given = [(GIVEN.get(kind) or kind.of)(evidence) for kind in self._asked_for]
        if not any(one is None or isinstance(one, Unknown) for one in given):
            yield from self.find(*given)

    @cached_property
    def _asked_for(self) -> tuple[Any, ...]:
        hints = get_type_hints(self.find)
        return tuple(hints[name] for name in inspect.signature(self.find).parameters)

    def causes(self, evidence: Evidence) -> Iterator[RootCause]:
        """Yield a root cause for each match."""
        declared = self.declared
        for match in self.matches(evidence):
            fix = list(match.fix) or [line.format(**match.figures) for line in declared.fix]
            trial = None if match.change is None else Trial(match.change, line=fix[declared.tried])
            seen = match.evidence
            inside = evidence.facts.set_by_python
            for name in (match.change or {}).keys() & inside.keys():  # then no shell can change it
                trial = None
                file = inside[name] or "the sitecustomize.py, usercustomize.py or .pth file"
                fix[declared.tried] = f"# take {name} out of {file}, which sets it whenever Python starts"
                fix = [line for line in fix if not line.startswith(f"export {name}=")]
                seen = (*seen, f"{name} is set in a Python that was started without it, too")
            yield RootCause(
                rule=self.id,
                stage=match.stage or self.stage,
                sure=match.sure,
                cause=self.cause.format(**match.figures),
                evidence=seen,
                fix=tuple(filter(None, fix)),
                url=match.url or declared.url,
                trial=trial,
            )

    @property
    def url(self) -> str:
        return self.declared.url

    @property
    def general_cause(self) -> str:
        """The cause, with the names of the figures in angle brackets in their place."""
        return with_names(self.cause)

    @property
    def general_fix(self) -> tuple[str, ...]:
        """The fix likewise, or what a line of it may be."""
        shown = self.declared.shown
        lines = (shown[line[1:-1]] if line[1:-1] in shown else with_names(line) for line in self.declared.fix)
        return tuple(filter(None, lines))
