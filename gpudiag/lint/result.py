"""The records of the lint's results, which are also its JSON."""

from __future__ import annotations

from gpudiag.fix import Action
from gpudiag.model.report import Severity
from gpudiag.record import Record
from gpudiag.text import one_line


class LintFinding(Record):
    """A line of a program that does not do what it seems to do."""

    rule: str
    severity: Severity
    file: str
    line: int
    """The number of the line, from 1; in a notebook, within its cell."""
    column: int
    """The column in characters, from 1."""
    end_line: int
    end_column: int
    message: str
    fix: tuple[Action, ...]
    """The fix: code, or an instruction."""
    text: str
    """The text of the line."""
    cell: int | None = None
    """In a notebook, the number of the cell among all cells, from 1."""
    cause: str | None = None
    """The cause of the catalogue that explains the finding: ``gpudiag explain NAME``."""
    fixable: bool = False
    """True if ``--fix`` can write the fix."""

    @property
    def fix_text(self) -> str:
        """The fix in one line."""
        return "; or ".join(one_line(action.text) for action in self.fix)

    @property
    def place(self) -> str:
        """``file:line:column``; in a notebook ``file:cell N:line:column``."""
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
    """The results of checking some files."""

    gpudiag: str
    """The version of gpudiag."""
    files: int
    findings: tuple[LintFinding, ...]
    problems: tuple[Problem, ...]
    schema: int = 2
    fixed: int = 0
    """Findings whose fixes ``--fix`` wrote; they are not among ``findings``."""

    @property
    def exit_code(self) -> int:
        """The exit status: 1 if there are findings, 5 if there are none but not everything was checked, else 0."""
        return 1 if self.findings else 5 if self.problems else 0
