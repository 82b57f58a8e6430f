"""The contract of a rule: its name, the events that it looks at, and what it reports.

A rule is a file, ``gpudiag/lint/rules/<name>.py``; the name of the file is its name. Its docstring begins with what is
wrong in one sentence. Then follow paragraphs for ``gpudiag explain``, and two examples, below ``Bad`` and ``Good``: in
the first the rule finds something, in the second it does not; the tests run both. ``RULE`` has the same sentence with
the figures of a match, and the fix; ``find`` looks at what a program does::

    def find(program: LintedProgram) -> Matches: ...
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache

from gpudiag.errors import UsageError, nearest, sentences
from gpudiag.fix import Action
from gpudiag.lint import rules as rule_files
from gpudiag.lint.program import LintedProgram, ProgramEvent
from gpudiag.model.report import Severity


@dataclass(frozen=True)
class Edit:
    """A part of a source that is replaced; lines from 1, columns from 0 in bytes of UTF-8, as in a syntax tree."""

    line: int
    column: int
    end_line: int
    end_column: int
    text: str


def replace(node: ast.AST, text: str) -> Edit:
    """Return the edit that writes ``text`` in place of a node."""
    return Edit(node.lineno, node.col_offset, node.end_lineno, node.end_col_offset, text)  # type: ignore[attr-defined]


def between(first: ast.expr, second: ast.expr, text: str) -> tuple[Edit, ...]:
    """Return the edit that writes ``text`` in place of what is between two parts of a statement."""
    after = insert_after(first, text)
    return (Edit(after.line, after.column, second.lineno, second.col_offset, text),)


def quoted(event: ProgramEvent, node: ast.AST, text: str) -> str:
    """Return ``text`` as a literal with the quotes of ``node``, a string in the program."""
    line = event.piece.lines[node.lineno - 1].encode()  # type: ignore[attr-defined]
    mark = line[node.col_offset : node.col_offset + 1].decode(errors="replace")  # type: ignore[attr-defined]
    return f"{mark}{text}{mark}" if mark in ("'", '"') else repr(text)


def insert_after(node: ast.AST, text: str) -> Edit:
    """Return the edit that writes ``text`` after a node."""
    return Edit(node.end_lineno, node.end_col_offset, node.end_lineno, node.end_col_offset, text)  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Violation:
    """A violation of a rule."""

    event: ProgramEvent
    figures: Mapping[str, object] = field(default_factory=dict)
    """The values that are put into the message and the fix."""
    node: ast.AST | None = None
    """The part of the event's statement to show, if not the whole statement."""
    fix: tuple[Action, ...] = ()
    """The fix in place of the rule's own, with its figures put in."""
    edits: tuple[Edit, ...] = ()
    """The edits that ``--fix`` writes; none if the intention is unknown."""
    severity: Severity | None = None
    """The severity in place of the rule's own."""
    cause: str = ""
    """The cause in place of the rule's own."""


Matches = Iterator[Violation]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """The declaration of a rule."""

    severity: Severity
    """FAIL: the program raises an exception or crashes; WARNING: a setting is ignored; NOTE: it depends on the
    machine."""
    fix: tuple[Action, ...]
    """The fix, with fields for the figures."""
    words: tuple[str, ...]
    """Words of which every file that the rule can apply to has at least one; other files are not even parsed."""
    message: str = ""
    """What is wrong, a format string over the figures of a match; empty if it is the docstring's."""
    also: tuple[str, ...] = ()
    """If the words are common, further texts of which such a file must have at least one."""
    url: str = "https://www.tensorflow.org/guide/gpu"
    cause: str = ""
    """The cause of the catalogue that explains the rule."""
    raises: tuple[str, ...] = ()
    """The exceptions that a line of which the rule is right raises when it runs."""


@dataclass(frozen=True)
class Known:
    """A rule: its declaration, and the texts of its file."""

    name: str
    declared: Rule
    general: str
    """What is wrong, without the figures of any program."""
    why: tuple[str, ...]
    """The paragraphs of the explanation, each on one line."""
    bad: str
    good: str
    find: Callable[[LintedProgram], Matches]

    @property
    def message(self) -> str:
        """What is wrong, a format string over the figures of a match."""
        return self.declared.message or self.general


@cache
def known() -> tuple[Known, ...]:
    """Return every rule, by name."""
    return tuple(
        _load(module.name) for module in sorted(pkgutil.iter_modules(rule_files.__path__), key=lambda entry: entry.name)
    )


def names() -> tuple[str, ...]:
    """Return the names of all rules without importing them."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(rule_files.__path__)))


def get(name: str) -> Known | None:
    """Return the rule of this name, or None."""
    return _load(name) if name in names() else None


@cache
def _load(name: str) -> Known:
    module = importlib.import_module(f"{rule_files.__name__}.{name}")
    general, _, rest = inspect.cleandoc(module.__doc__ or "").partition("\n\n")
    text, bad, good = re.split(r"^(?:Bad|Good)\n", rest, flags=re.MULTILINE)
    paragraphs = tuple(" ".join(part.split()) for part in text.split("\n\n") if part.strip())
    example = [textwrap.dedent(block).strip("\n") + "\n" for block in (bad, good)]
    return Known(name, module.RULE, " ".join(general.split()), paragraphs, example[0], example[1], module.find)


def chosen(select: tuple[str, ...], ignore: tuple[str, ...]) -> tuple[Known, ...]:
    """Return the selected rules, or all, without the ignored ones; raises :class:`UsageError` for an unknown name."""
    for name in (*select, *ignore):
        if name not in names():
            raise UsageError(
                sentences(f"no rule is called {name!r}.", nearest(name, names()), "See 'gpudiag lint --list-rules'.")
            )
    return tuple(rule for rule in known() if (not select or rule.name in select) and rule.name not in ignore)
