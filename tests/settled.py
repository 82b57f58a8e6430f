"""Logs of public threads whose cause was settled there: what ``gpudiag why`` must say of them.

A file is a log: the lines that a program or a tool printed, where from, what was settled there (``right``, ``fix``),
the cause of the catalogue that this is, and a word of what was settled that the answer must have. Names of machines
are replaced. A third of the threads, chosen by a hash of the address, is in ``tests/logs/held_out``: nobody reads them
while gpudiag is built, no test looks at them, and ``scripts/campaigns/held_out_logs.py`` counts how many are answered.
"""

from __future__ import annotations

import hashlib
import sys
from dataclasses import dataclass
from pathlib import Path

from gpudiag.model.diagnosis import Diagnosis
from gpudiag.run import why
from reports import fix_line

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOLDER = Path(__file__).parent / "logs"
HELD_OUT = FOLDER / "held_out"
UNSEEN = FOLDER / "unseen"
"""Threads that were looked for after the others, and scored before anything was changed for them: nothing ever is."""


@dataclass(frozen=True)
class Settled:
    """A log and what is known of it."""

    name: str
    source: str
    tensorflow: str
    """The release that wrote it; "" if it is not known."""
    settled: str
    """By whom: ``thread``, or ``reading`` of the lines by somebody else."""
    right: str
    """What the cause was."""
    fix: str
    """What helped."""
    harmless: bool
    """Whether the lines name no fault."""
    cause: str
    word: str
    """A word of ``right`` or ``fix``, in lower case, that the cause or its fix must have; "" if they share none."""
    log: str

    @property
    def is_held_out(self) -> bool:
        return int(hashlib.sha256(self.source.encode()).hexdigest(), 16) % 3 == 0

    def diagnosis(self) -> Diagnosis:
        return why.explained(tuple(self.log.splitlines()), ("gpudiag", "why")).diagnosis


def load(folder: Path = FOLDER) -> list[Settled]:
    """Return the logs of a folder, by name."""
    return [Settled(name=path.stem, **tomllib.loads(path.read_text("utf-8"))) for path in sorted(folder.glob("*.toml"))]


def answer(diagnosis: Diagnosis) -> tuple[str, str]:
    """Return the cause that is named first, and what is said of it with its fix, in lower case; "" for none."""
    if not diagnosis.causes:
        return "", ""
    cause = diagnosis.causes[0]
    return cause.cause_id, " ".join((cause.cause, *(fix_line(action) for action in cause.fix))).lower()
