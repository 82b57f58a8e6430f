"""The contract of a rule: what is looked at, and what it says.

A rule is data (:class:`Rule`) and a pure function over :class:`Evidence`. It judges causes, not the texts of examples:
a text of a log is evidence where nothing else shows the fault. Each file of this package is a family and has ``RULES``;
each rule has ``cases``, machines on which it fires or stays silent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

import msgspec

from gpudiag.hostfacts import Facts
from gpudiag.log import Log
from gpudiag.model import Figure, Finding, Gpu, Judged, RootCause, Row, Stage, Sure, Trial
from gpudiag.plaintext import with_names
from gpudiag.probe import Reading
from gpudiag.probes.discovery import trace

TRACE = "discovery.trace"

_R = TypeVar("_R", bound=Reading)


@dataclass(frozen=True)
class Evidence:
    """All that a rule may look at."""

    facts: Facts
    gpus: tuple[Gpu, ...] = ()
    """The GPUs in scope."""
    rows: tuple[Row, ...] = ()
    lines: tuple[str, ...] = ()
    """Of the log of the user's own program, where it was given."""

    def found(self, probe: str, kind: str) -> tuple[Finding, ...]:
        """Return the findings of this kind that the probe made, on any device."""
        return tuple(one for row in self.rows if row.probe == probe for one in row.findings if one.kind == kind)

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
    def program(self) -> Log:
        """The log of the user's own program."""
        return Log(self.lines)

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


@dataclass(frozen=True)
class Match:
    """A rule has fired."""

    evidence: tuple[str, ...]
    """What was seen, each a line for a person."""
    sure: Sure = Sure.PROVED
    figures: dict[str, Figure] = field(default_factory=dict)
    """Put into the rule's texts."""
    change: dict[str, str | None] | None = None
    """The line :attr:`Rule.tried` of the fix as a change of variables, where it is one: it is tried."""
    stage: Stage | None = None
    """The first stage that it breaks on this machine, where that is not the rule's own."""


@dataclass(frozen=True)
class RuleCase:
    """An example: evidence, and whether the rule fires on it."""

    name: str
    evidence: Evidence
    fires: bool = True


@dataclass(frozen=True)
class Rule:
    """One cause."""

    id: str
    """A few words joined by underscores that name the cause, such as ``package_not_on_runpath``."""
    stage: Stage
    """The first stage that it breaks."""
    cause: str
    """One sentence, a format string over the match's figures."""
    why: str
    """A paragraph for ``gpudiag explain``: how it comes about, what users see, what misleads."""
    fix: tuple[str, ...]
    """Commands or lines of code, format strings; in order. What is said of one stands after ``#``, and a line that
    begins with it is a sentence: each can be pasted. A line that comes out empty is left out."""
    url: str
    find: Callable[[Evidence], Iterator[Match]]
    cases: tuple[RuleCase, ...]
    tried: int = 0
    """Which line of the fix is the change of a match."""
    needs_gpu: bool = True
    """False: it may be the cause where no NVIDIA GPU can be seen, too, as in a container that was given none."""
    last_resort: bool = False
    """True: it says what is known where no other rule finds a cause, and counts only there."""
    symptom: bool = False
    """True: it follows from another cause, which comes before it where that was found."""

    def causes(self, evidence: Evidence) -> Iterator[RootCause]:
        """Yield a root cause for each match."""
        for match in self.find(evidence):
            fix = [line.format(**match.figures) for line in self.fix]
            trial = None if match.change is None else Trial(match.change, line=fix[self.tried])
            seen = match.evidence
            inside = evidence.facts.set_by_python
            for name in (match.change or {}).keys() & inside.keys():  # then no shell can change it
                trial = None
                file = inside[name] or "the sitecustomize.py, usercustomize.py or .pth file"
                fix[self.tried] = f"# take {name} out of {file}, which sets it whenever Python starts"
                fix = [line for line in fix if not line.startswith(f"export {name}=")]
                seen = (*seen, f"{name} is set in a Python that was started without it, too")
            yield RootCause(
                rule=self.id,
                stage=match.stage or self.stage,
                sure=match.sure,
                cause=self.cause.format(**match.figures),
                evidence=seen,
                fix=tuple(filter(None, fix)),
                url=self.url,
                trial=trial,
            )

    @property
    def general_cause(self) -> str:
        """The cause, with the names of the figures in angle brackets in their place."""
        return with_names(self.cause)

    @property
    def general_fix(self) -> tuple[str, ...]:
        """The fix likewise; of a line that is but a figure, and is another on each machine, that of an example."""
        example = next(match for case in self.cases if case.fires for match in self.find(case.evidence))
        lines = (line.format(**example.figures) if _BARE.fullmatch(line) else with_names(line) for line in self.fix)
        return tuple(filter(None, lines))

    @property
    def explanation(self) -> str:
        """The paragraph :attr:`why` as one line."""
        return " ".join(self.why.split())


_BARE = re.compile(r"\{\w+\}")
