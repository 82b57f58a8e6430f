"""What a run is asked to do, and who is informed of its progress."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from gpudiag.catalogue import Entry
from gpudiag.model.facts import Facts
from gpudiag.model.report import Gpu, Limits, Row, Settings
from gpudiag.run.machine import Machine


class Observer(Protocol):
    """Is informed of the progress of a run."""

    def machine(self, facts: Facts, gpus: tuple[Gpu, ...]) -> None: ...

    def phase(self, text: str, probes: Sequence[str] | None = None) -> None: ...

    def started(self, label: str) -> None: ...

    def finished(self, row: Row, label: str) -> None: ...

    def tick(self) -> None: ...


@dataclass(frozen=True)
class Options:
    """What to run and how."""

    entries: tuple[Entry, ...]
    level: str | None = None
    """``quick`` or ``full``; None: full, unless another process computes on a GPU in scope."""
    disturb: bool = False
    """True: probes that measure or fill device memory also run on GPUs that others use."""
    isolation: str = "fork"
    """``fork`` or ``spawn``."""
    jobs: int | None = None
    """Children at the same time; None: as many as processors and memory allow."""
    timeout_s: float | None = None
    """For each probe and for TensorFlow's import; None: what each probe declares."""
    deadline_s: float | None = None
    """For the whole run."""
    lines: tuple[str, ...] = ()
    """Of the log of the user's own program; the diagnosis reads them."""
    limits: Limits = field(default_factory=Limits)
    command: tuple[str, ...] = ()
    machine: Machine = field(default_factory=Machine)
    lock_wait_s: float = 300.0
    """How long a probe waits for a GPU that another run of gpudiag holds."""
    settings: Settings | None = None
    notes: tuple[str, ...] = ()
    """Notes of the report, from before the run."""
    bisect_s: float = 0.0
    """How long the environment may be bisected if it is not known why no GPU is used; 0: not at all."""
    catalogue: bool = True
    """False: the diagnosis names no cause, so that tests see what is found without them."""
