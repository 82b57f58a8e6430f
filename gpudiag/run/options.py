"""The options of a run, and the observer of its progress."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from gpudiag.catalogue import Entry
from gpudiag.model.facts import Facts
from gpudiag.model.report import Gpu, Limits, Row, Settings
from gpudiag.run.asked import RequestedRun, SearchOptions
from gpudiag.run.machine import ExaminedMachine


class Observer(Protocol):
    """Receives the progress of a run."""

    def machine(self, facts: Facts, gpus: tuple[Gpu, ...]) -> None: ...

    def phase(self, text: str, probes: Sequence[str] | None = None) -> None: ...

    def note(self, text: str) -> None: ...

    def started(self, label: str) -> None: ...

    def finished(self, row: Row, label: str) -> None: ...

    def tick(self) -> None: ...


@dataclass(frozen=True)
class Options(SearchOptions, RequestedRun):
    """What to run and how."""

    entries: tuple[Entry, ...]
    isolation: str = field(default="fork", kw_only=True)
    """``fork`` or ``spawn``."""
    bisect_s: float = field(default=0.0, kw_only=True)
    """Seconds for bisecting the environment if it is unknown why no GPU is used; 0: do not bisect."""
    lines: tuple[str, ...] = ()
    """Lines from the log of the user's own program; the diagnosis reads them."""
    limits: Limits = field(default_factory=Limits)
    command: tuple[str, ...] = ()
    machine: ExaminedMachine = field(default_factory=ExaminedMachine)
    settings: Settings | None = None
    skip: tuple[str, ...] = ()
    """The patterns of ``--skip`` that left out some of the probes that were selected."""
    notes: tuple[str, ...] = ()
    """Notes for the report from before the run."""
    not_examined: str = ""
    """Why another environment than this was to be examined, and could not be; TensorFlow is then unknown."""
