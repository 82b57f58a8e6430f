"""The records of a comparison. They are part of a report, which holds what changed since the last PASS."""

from __future__ import annotations

from enum import Enum

from gpudiag.record import Record


class ChangeSubject(str, Enum):
    """What a change is about."""

    VERDICT = "verdict"
    GPU = "GPU"
    """GPUs in scope."""
    CAUSE = "cause"
    OUTCOME = "outcome"
    FINDING = "finding"
    RATE = "rate"
    """The rates of a GPU under load."""
    FACT = "fact"


class Change(Record):
    """A difference between two reports."""

    subject: ChangeSubject
    name: str
    """For people: ``driver``, ``LD_LIBRARY_PATH``, ``memory.growth GPU 0``."""
    old: str | None
    """The earlier value; None if there was none."""
    new: str | None
    """The later value; None if there is none. For a rate, a sentence: what is slower, by how much, and the noise."""
    worse: bool = False
    """True if this change makes ``gpudiag diff`` end with status 1."""
    path: str = ""
    """For a fact, its path in ``facts``, such as ``libraries.libraries[libcudnn.so.9].version``."""


class Side(Record):
    """One of the two reports."""

    source: str
    """The file of the report, or another description of where it comes from."""
    started_at: str
    verdict: str
    gpudiag_version: str


class ReportComparison(Record):
    """What changed from one report to another."""

    old: Side
    new: Side
    changes: tuple[Change, ...]

    @property
    def worse(self) -> tuple[Change, ...]:
        """The changes for the worse."""
        return tuple(change for change in self.changes if change.worse)

    @property
    def facts(self) -> tuple[Change, ...]:
        """The changes of the machine; those that can explain why the newer report fails come first."""
        return tuple(change for change in self.changes if change.subject is ChangeSubject.FACT)

    @property
    def rates(self) -> tuple[Change, ...]:
        """The changes of rates under load."""
        return tuple(change for change in self.changes if change.subject is ChangeSubject.RATE)
