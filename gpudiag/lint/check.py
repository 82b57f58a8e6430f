"""Checks files: runs every rule on every program, except where comments switch rules off."""

from __future__ import annotations

import ast
import gc
import io
import os
import re
import tokenize
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import gpudiag
from gpudiag.errors import nearest
from gpudiag.fix import fill_in
from gpudiag.lint import rule, sources
from gpudiag.lint.program import LintedProgram
from gpudiag.lint.project import Module, Project, Words
from gpudiag.lint.reading import Reader
from gpudiag.lint.result import LintFinding, Problem, Result
from gpudiag.lint.rule import Edit, Known, Violation
from gpudiag.lint.sources import Piece, Source
from gpudiag.text import one_line

_IGNORE = re.compile(r"#\s*gpudiag:\s*ignore(?P<file>-file)?\b(?:\[(?P<rules>[^\]]*)\])?")
_CONCERNED = (b"tensorflow", b"keras", b"horovod", b"environ", b"putenv", b"CUDA_")
_TF = re.compile(rb"\btf\b")
"""Signs that a file concerns TensorFlow or sets its variables; other files are not even parsed."""
_LONGEST = 200
"""The most characters of a program's line that are shown."""


@dataclass
class Found:
    """A finding, and how it can be fixed."""

    finding: LintFinding
    source: Source
    piece: Piece
    edits: tuple[Edit, ...] = ()


@dataclass
class Run:
    """The results of checking some files, before they are written."""

    files: int = 0
    found: list[Found] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def result(self, fixed: int = 0) -> Result:
        findings = sorted(
            (finding.finding for finding in self.found),
            key=lambda finding: (finding.file, finding.cell or 0, finding.line, finding.column, finding.rule),
        )
        return Result(gpudiag.__version__, self.files, tuple(findings), tuple(self.problems), fixed=fixed)


def check(
    paths: Sequence[Path],
    rules: Sequence[Known],
    exclude: Sequence[str] = (),
    stdin: bytes | None = None,
    gpu_bytes: int | None = None,
    *,
    on_progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Run:
    """Check the files and the folders ``paths``; ``stdin`` is the text of the path ``-``.

    ``gpu_bytes`` is the memory of the GPU that the programs are for, if the user says so. ``on_progress`` is called
    with the number of files that were read and 0, then with the number of programs that were checked, and of all.
    """
    run = Run(problems=list(sources.unreadable_folders(paths)))
    collects = gc.isenabled()
    # Syntax trees are millions of objects that are all in use: to look through them for garbage again and again took a
    # third of the time, and found 1 % of the memory.
    gc.disable()
    try:
        _check(run, paths, rules, exclude, stdin, gpu_bytes, on_progress)
    finally:
        if collects:
            gc.enable()
    return run


def _check(  # noqa: PLR0917
    run: Run,
    paths: Sequence[Path],
    rules: Sequence[Known],
    exclude: Sequence[str],
    stdin: bytes | None,
    gpu_bytes: int | None,
    on_progress: Callable[[int, int], None],
) -> None:
    words = Words(known_rule.declared for known_rule in rules)
    project = Project(words)
    concerned: list[Source] = []
    scripts: list[Source] = []
    for source in _read(paths, exclude, stdin):
        run.files += 1
        on_progress(run.files, 0)
        if source.problems:
            run.problems += source.problems
        elif (source.is_script or _is_concerned(source.raw)) and words.in_bytes(source.raw):
            concerned.append(source)
        elif not source.is_script and _is_script(source.raw):
            scripts.append(source)
    names = {_module_name(source.path) for source in concerned}
    files = {os.path.realpath(source.path) for source in concerned}

    def leads_there(source: Source) -> bool:
        """Return whether a file imports another file that concerns TensorFlow."""
        imports = (name for name in _imports(source.raw) if name[0].rpartition(".")[2] in names)
        return any(os.path.realpath(project.file(*name, source.path) or "") in files for name in imports)

    concerned += [script for script in scripts if script.path in paths or leads_there(script)]
    selected = {module: module.source for module in map(project.module, concerned)}
    seen: set[tuple[str, str, int | None, int, int]] = set()
    shared = frozenset(name.rpartition(".")[2] for other in selected.values() for name, _ in _imports(other.raw))
    for number, (module, source) in enumerate(selected.items()):
        on_progress(number, len(selected))
        for finding in _checked(project, module, rules, selected, gpu_bytes, shared):
            shown = finding.finding
            key = (shown.rule, shown.file, shown.cell, shown.line, shown.column)
            if key not in seen:
                seen.add(key)
                run.found.append(finding)
        run.problems += source.problems
    run.problems += unknown_names(list(selected.values()))


_IMPORTED = re.compile(
    rb"^[ \t]{0,200}(?:from|import)[ \t]{1,40}(\.{0,40})([\w.]{0,400})"
    rb"(?:[ \t]{1,40}import[ \t]{1,40}(?:([\w ,]{1,4000})|\(([\w ,\s]{1,4000})))?",
    re.MULTILINE | re.ASCII,
)


def _imports(raw: bytes) -> Iterator[tuple[str, int]]:
    """Yield possible module names that a file imports, and the level of a relative import."""
    for found in _IMPORTED.finditer(raw):
        dots, module, *names = (part.decode() if part else "" for part in found.groups())
        yield module, len(dots)
        for name in "".join(names).replace(",", " ").split():
            yield f"{module}.{name}".lstrip("."), len(dots)


def _is_concerned(raw: bytes) -> bool:
    return any(word in raw for word in _CONCERNED) or _TF.search(raw) is not None


_DOES = re.compile(
    rb"^(?!import\b|from\b|def\b|class\b|async\b|__all__\b)\w[^\n]{0,400}?(?:[(\[{\\]|:[ \t]{0,40}$)", re.MULTILINE
)


def _is_script(raw: bytes) -> bool:
    """Return whether a file does more than import when it is run, so that its imports are worth following."""
    return b"__main__" in raw or _DOES.search(raw) is not None


def _module_name(path: Path) -> str:
    return path.parent.name if path.stem == "__init__" else path.stem


def _read(paths: Sequence[Path], exclude: Sequence[str], stdin: bytes | None) -> Iterator[Source]:
    for path in sources.files([path for path in paths if str(path) != "-"], exclude):
        yield sources.read(path)
    if stdin is not None:
        yield Source(Path("-"), "-", stdin)


def _checked(  # noqa: PLR0917
    project: Project,
    module: Module,
    rules: Sequence[Known],
    selected: dict[Module, Source],
    gpu_bytes: int | None,
    shared: frozenset[str],
) -> Iterator[Found]:
    """Yield the findings of the rules in one program and in what it calls of other checked files."""
    program = Reader(project, module).read()
    program.gpu_bytes = gpu_bytes
    program.shared = module.name in shared
    words = frozenset().union(*(module.words for module in program.modules))
    for known in rules:
        if words.isdisjoint(known.declared.words):
            continue
        try:
            yield from [result for match in known.find(program) if (result := _found(known, match, program, selected))]
        except Exception as error:  # costs this rule in this file
            why = f"failed, and is not checked ({type(error).__name__}: {error}): please report it"
            module.source.problem(f"the rule {known.name} {why}")


def _found(known: Known, match: Violation, program: LintedProgram, selected: dict[Module, Source]) -> Found | None:
    """Return the finding of a match; None if its file is not checked, or a comment there switches the rule off."""
    event = match.event
    module, piece, node = event.module, event.piece, match.node or event.node
    edits = () if piece.shown else match.edits  # the places in it are not those of the cell
    if module not in selected:  # in a file that is not checked: the call that leads there is
        outer = next((frame for frame in reversed(event.stack) if frame[0] in selected), None)
        if outer is None:
            return None
        (module, piece, node), edits = outer, ()
    source = selected[module]
    if _ignored(source, piece, node, known.name):
        return None
    line, column = node.lineno, node.col_offset  # type: ignore[attr-defined]
    end_line, end_column = node.end_lineno or line, node.end_col_offset or column  # type: ignore[attr-defined]
    finding = LintFinding(
        rule=known.name,
        severity=match.severity or known.declared.severity,
        file=source.shown,
        line=line,
        column=_characters(piece, line, column) + 1,
        end_line=end_line,
        end_column=_characters(piece, end_line, end_column) + 1,
        message=one_line(known.message.format_map(match.figures)),
        fix=match.fix or tuple(fill_in(action, match.figures) for action in known.declared.fix),
        text=_line(piece, line).strip()[:_LONGEST],
        cell=piece.cell,
        cause=match.cause or known.declared.cause or None,
        fixable=bool(edits),
    )
    return Found(finding, source, piece, edits)


def _line(piece: Piece, number: int) -> str:
    lines = piece.shown or piece.lines
    return lines[number - 1] if 0 < number <= len(lines) else ""


def _characters(piece: Piece, line: int, column: int) -> int:
    """Return a column in characters for a column in bytes."""
    return len(_line(piece, line).encode()[:column].decode(errors="ignore"))


def _ignored(source: Source, piece: Piece, node: ast.AST, name: str) -> bool:
    """Return whether a comment on a line of ``node``, or one for the whole file, switches the rule off."""
    if b"gpudiag:" not in source.raw:
        return False
    lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)  # type: ignore[attr-defined]
    for other in source.pieces:
        for line, whole, rules in _comments(other.text):
            if (whole or (other is piece and line in lines)) and (rules is None or name in rules):
                return True
    return False


@lru_cache(maxsize=64)
def _comments(text: str) -> list[tuple[int, bool, frozenset[str] | None]]:
    """Return the comments that switch rules off: line, whether for the whole file, and the rules (None: all)."""
    found: list[tuple[int, bool, frozenset[str] | None]] = []
    if "gpudiag:" not in text:
        return found
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT and (match := _IGNORE.search(token.string)):
                listed = None if match["rules"] is None else frozenset(map(str.strip, match["rules"].split(",")))
                found.append((token.start[0], bool(match["file"]), listed))
    except (tokenize.TokenError, SyntaxError):
        pass
    return found


def unknown_names(run_sources: Sequence[Source]) -> Iterator[Problem]:
    """Yield a problem for each comment that names an unknown rule: it would switch off nothing."""
    known = rule.names()
    for source in run_sources:
        for piece in source.pieces:
            for line, _, listed in _comments(piece.text):
                for name in sorted((listed or frozenset()) - set(known)):
                    text = f"this comment names no rule: {name!r}. {nearest(name, known)}"
                    yield Problem(source.shown, line, one_line(text), piece.cell)
