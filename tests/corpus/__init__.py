"""The corpus of misconfigurations that users meet: how each is built here, and what must be said of it.

One table a family. An item is built, from the surest kind of machine down: *end to end* (``gpudiag check`` runs under
it), *facts* (the rules alone, on facts as they would be gathered: what cannot be built here), *text* (a recorded log).
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from conftest import Gpudiag
from gpudiag.cause import Evidence

RECORDED = Path(__file__).parents[1] / "recorded" / "corpus"


@dataclass(frozen=True)
class Item:
    """A misconfiguration."""

    number: int
    """In the corpus of the project; its numbers have gaps and never change."""
    title: str
    rule: str
    """The first cause that must be named."""
    fix: str
    """What its fix must hold: a piece of the command or line."""
    machine: str | None = None
    """End to end: what ``--simulate`` takes, or TOML where it holds a line break; "" for the real machine."""
    faults: tuple[str, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    prepare: Callable[[Gpudiag], None] | None = None
    """Changes the environment that ``gpudiag check`` runs in: dummy distributions, files, a log."""
    tried: str | None = None
    """What trying the fix must come to: ``works``, ``helps in part`` or ``does not help``."""
    evidence: Evidence | None = None
    """Facts or text: what the rules are given, where the machine cannot be built here."""
    why_not_built: str = ""
    """Why it is not end to end."""
    after: str = ""
    """The cause that must come before it: this one follows from it."""
    harmless: str = ""
    """No cause, but a line that must be named as harmless: a piece of what is said of it."""
    log_recorded: bool = False
    """The machine is built, and the program's log is recorded text."""
    source: str = ""
    """The public thread in which users met this machine, and settled its cause."""
    settled: str = ""
    """The cause that was settled there, in words, and what fixed it."""
    first: str = ""
    """A folder, below that of the run, that LD_LIBRARY_PATH puts before the machine's libraries."""

    @property
    def kind(self) -> str:
        if self.machine is not None:
            return "end to end, recorded log" if self.log_recorded else "end to end"
        return "text" if self.evidence is not None and self.evidence.lines else "facts"

    @property
    def recording(self) -> Path:
        """The file of the report of it, if one was recorded because its test takes long."""
        return RECORDED / f"{re.sub('[^a-z0-9]+', '-', str(self).lower()).strip('-')}.json"

    def __str__(self) -> str:
        return f"{self.number:02} {self.title}"


def items() -> tuple[Item, ...]:
    """Return every item, in the order of the corpus; an item may be built in several ways."""
    found = [
        item
        for family in pkgutil.iter_modules(__path__)
        for item in importlib.import_module(f"{__name__}.{family.name}").ITEMS
    ]
    return tuple(sorted(found, key=lambda item: item.number))
