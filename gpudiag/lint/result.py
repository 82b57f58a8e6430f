"""What a lint finds, as records; they are its JSON."""

from __future__ import annotations

from gpudiag.fix import Action
from gpudiag.model.report import Severity
from gpudiag.record import Record
from gpudiag.text import one_line


class Finding(Record):
    """A line of a program that does not do what it seems to do."""

    rule: str
    severity: Severity
    file: str
    line: int
    """The line, from 1; in a notebook, within its cell."""
    column: int
    """The column in characters, from 1."""
    end_line: int
    end_column: int
    message: str
    fix: tuple[Action, ...]
    """What to write instead, or what to do."""
    text: str
    """The line itself."""
    cell: int | None = None
    """Of a notebook: the number of the cell among all of its cells, from 1."""
    cause: str | None = None
    """The cause of the catalogue that explains it: ``gpudiag explain NAME``."""
    fixable: bool = False
    """True: ``--fix`` writes it."""

    @property
    def fix_text(self) -> str:
        """The fix in one line."""
        return "; or ".join(one_line(action.text) for action in self.fix)

    @property
    def place(self) -> str:
        """``file:line:column``; of a notebook ``file:cell N:line:column``."""
        inside = "" if self.cell is None else f"cell {self.cell}:"
        return f"{self.file}:{inside}{self.line}:{self.column}"


class Problem(Record):
    """A file, or a part of one, that was not checked."""

    file: str
    line: int
    """The line, from 1; 0: the whole file."""
    message: str
    cell: int | None = None

    @property
    def place(self) -> str:
        parts = [self.file]
        parts += [] if self.cell is None else [f"cell {self.cell}"]
        parts += [str(self.line)] if self.line else []
        return ":".join(parts)


class Result(Record):
    """What came of checking some files."""

    gpudiag: str
    """The version."""
    files: int
    findings: tuple[Finding, ...]
    problems: tuple[Problem, ...]
    schema: int = 2
    fixed: int = 0
    """Findings that ``--fix`` wrote; they are not among ``findings``."""

    @property
    def exit_code(self) -> int:
        """1 something was found, 5 nothing was found but not everything was checked, 0 nothing."""
        return 1 if self.findings else 5 if self.problems else 0
