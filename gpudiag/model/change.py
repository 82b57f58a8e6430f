"""The records of a comparison. They are part of a report, which holds what changed since the last PASS."""

from __future__ import annotations

from enum import Enum

from gpudiag.record import Record


class Subject(str, Enum):
    """What a change is about."""

    VERDICT = "verdict"
    GPU = "GPU"
    """GPUs in scope."""
    CAUSE = "cause"
    OUTCOME = "outcome"
    FINDING = "finding"
    FACT = "fact"


class Change(Record):
    """One thing that is not as it was."""

    subject: Subject
    name: str
    """For people: ``driver``, ``LD_LIBRARY_PATH``, ``memory.growth GPU 0``."""
    old: str | None
    """None: it was not there."""
    new: str | None
    """None: it is no longer there."""
    worse: bool = False
    """True: this makes ``gpudiag diff`` end with 1."""
    path: str = ""
    """Of a fact: its path in ``facts``, such as ``libraries.libraries[libcudnn.so.9].version``."""


class Side(Record):
    """One of the two reports."""

    source: str
    """The file of the report, or what else it is."""
    started_at: str
    verdict: str
    gpudiag_version: str


class Comparison(Record):
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
        """The changes of the machine, those first that can explain why the newer report fails."""
        return tuple(change for change in self.changes if change.subject is Subject.FACT)
