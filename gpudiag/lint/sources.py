"""Finding and reading what is checked: Python files and notebooks. Nothing in them is executed.

A part that cannot be read or parsed is a :class:`Problem`, never an exception, and only that part (in a notebook the
cell) is skipped.
"""

from __future__ import annotations

import ast
import fnmatch
import io
import json
import os
import re
import stat
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpudiag.lint.result import Problem
from gpudiag.lint.shell import SCRIPTS
from gpudiag.text import one_line

LARGEST = 8 << 20
"""The largest source in bytes that is parsed: the syntax tree takes about a hundred times as much memory."""
_MOST_READ = 64 << 20
"""The most bytes of a file that is searched for the rules' words: notebooks and generated programs can contain data."""
SUFFIXES = (".py", ".pyw", ".ipynb")
_SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages", "dist-packages"})
"""Folders without the user's own sources. Folders whose name begins with a dot, and virtual environments, are skipped,
too."""

_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
"""The byte order marks of UTF-16, which Windows editors write."""

_MAGIC = re.compile(r"^(?P<indent>\s{0,400})(?P<target>\w[\w, ]{0,200}?=\s{0,40})?(?P<mark>[%!?]{1,2})(?P<rest>.*)$")
_HELP = re.compile(r"^\s*[\w.]+\?{1,2}\s*$")
_AUTOMAGIC = re.compile(r"^\s*(?:ls|cd|pwd|cat|cp|mv|rm|mkdir|pip|conda|man|less|head|tail)(?:\s+[^=(\s].*)?$")
_ENV_MAGIC = re.compile(r"^(?:env|set_env)\s+(\w+)(?:\s*=\s*|\s+)(.+)$")
_PYTHON_2 = re.compile(
    r"Missing parentheses in call to|except|<>|leading zeros in decimal|exec|parameters cannot be parenthesized",
    re.IGNORECASE,
)
_PYTHON_2_LINE = re.compile(
    r"\bprint |\braise [\w.]{1,80}, |\b(?:0x[0-9a-fA-F]{1,40}|\d{1,40})[lL]\b|\b[uU][rR][\"']|`"
    # Parameters in parentheses: Python 3.10 says no more than "invalid syntax".
    r"|\b(?:def \w{1,80}\(|lambda )(?:[^():]{0,200},)? ?\("
)


@dataclass
class Piece:
    """A text that Python parses: a file, or a cell of a notebook."""

    text: str
    cell: int | None = None
    """In a notebook, the number of the cell among all its cells, from 1."""
    tree: ast.Module | None = None
    lines: list[str] = field(default_factory=list)
    bound: dict[int, str] | None = None
    """The name that the result of each call is assigned to, by the call's identity; computed on first use."""
    is_script: bool = False
    """True for lines of a shell, or a file that is read as a shell script."""
    shown: list[str] | None = None
    """The lines as the notebook has them, if the cell has magics, which are written as Python."""


@dataclass
class Source:
    """A file that is checked."""

    path: Path
    shown: str
    """The path as the user wrote it."""
    raw: bytes = b""
    encoding: str = "utf-8"
    pieces: list[Piece] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    notebook: dict[str, Any] | None = None

    def problem(self, message: str, line: int = 0, cell: int | None = None) -> None:
        """Record why a part of the file is not checked."""
        self.problems.append(Problem(self.shown, line, one_line(message), cell))

    @property
    def is_script(self) -> bool:
        """True for a shell script, or a file that is read as one."""
        return SCRIPTS.search(self.path.name) is not None

    @property
    def is_notebook(self) -> bool:
        return self.path.suffix == ".ipynb"


def files(paths: Sequence[Path], exclude: Sequence[str] = ()) -> Iterator[Path]:
    """Yield the files to check, each once, in order; of a folder, its Python files and notebooks.

    Links to folders are not followed, so that no loop of links is walked.
    """
    seen: set[str] = set()
    for path in paths:
        for file in _walk(path, exclude) if _is_folder(path) else (path,):
            real = os.path.realpath(file)
            if real not in seen:
                seen.add(real)
                yield file


def _is_folder(path: Path) -> bool:
    """Return whether a path is a folder; False if it cannot be examined, in which case ``Path.is_dir`` raises."""
    return os.path.isdir(path)  # noqa: PTH112


def _walk(folder: Path, exclude: Sequence[str]) -> Iterator[Path]:
    for root, folders, names in os.walk(folder):
        here = Path(root)
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".")
            and name not in _SKIPPED
            and not os.path.exists(here / name / "pyvenv.cfg")  # noqa: PTH110  (of a folder that is shut: False)
            and not _excluded(here / name, folder, exclude)
        )
        for name in sorted(names):
            if (name.endswith(SUFFIXES) or SCRIPTS.search(name)) and not _excluded(here / name, folder, exclude):
                yield here / name


def _excluded(path: Path, folder: Path, exclude: Sequence[str]) -> bool:
    relative = path.relative_to(folder).as_posix()
    return any(fnmatch.fnmatch(relative, pattern) or fnmatch.fnmatch(path.name, pattern) for pattern in exclude)


def unreadable_folders(paths: Sequence[Path]) -> Iterator[Problem]:
    """Yield a problem for each folder that cannot be listed; ``os.walk`` silently skips them."""
    for path in paths:
        found: list[OSError] = []
        if _is_folder(path):
            for _ in os.walk(path, onerror=found.append):
                pass
        for error in found:
            yield Problem(str(error.filename), 0, f"the folder cannot be read: {error.strerror}")


def read(path: Path, shown: str = "") -> Source:
    """Return a file with its text, unparsed; its faults are recorded as problems."""
    # A name that is not UTF-8 is shown with escapes, or no format could be written.
    source = Source(path, (shown or str(path)).encode("utf-8", "backslashreplace").decode())
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            source.problem("not a regular file")
            return source
        if status.st_size > _MOST_READ:
            source.problem(
                f"{status.st_size / (1 << 20):.0f} MiB long: files above {_MOST_READ >> 20} MiB are not read"
            )
            return source
        source.raw = path.read_bytes()
        if source.raw[:2] in _UTF_16 or [source.raw[at : at + 2].count(0) for at in (0, 2)] == [1, 1]:
            source.problem("not checked: UTF-16, which Python refuses; save it as UTF-8", 1)
    except OSError as error:
        source.problem(f"cannot be read: {error.strerror or error}")
    return source


def parse(source: Source) -> None:
    """Parse the text of the source into pieces."""
    if source.problems or source.pieces:
        return
    if len(source.raw) > LARGEST:
        size = f"{len(source.raw) / (1 << 20):.1f}"
        source.problem(f"{size} MiB long: sources above {LARGEST >> 20} MiB are not parsed")
    elif source.is_notebook:
        _read_notebook(source)
    elif source.is_script:
        text = source.raw.decode(errors="replace")
        source.pieces.append(Piece(text, tree=ast.Module([], []), lines=text.split("\n"), is_script=True))
    else:
        piece = Piece(_decoded(source))
        source.pieces.append(piece)
        _parse(source, piece)


def _decoded(source: Source) -> str:
    """Return the text of a Python file, by its coding line; text that Python would refuse is read as Latin-1."""
    try:
        source.encoding, _ = tokenize.detect_encoding(io.BytesIO(source.raw).readline)
        return source.raw.decode(source.encoding)
    except (SyntaxError, UnicodeDecodeError, LookupError) as error:
        at = getattr(error, "start", None)
        line = source.raw.count(b"\n", 0, at) + 1 if at is not None else 1
        source.encoding = "latin-1"
        source.problem("not UTF-8, and no coding line says what it is: Python refuses it; checked as Latin-1", line)
        return source.raw.decode("latin-1")


def _parse(source: Source, piece: Piece) -> None:
    """Parse one piece; if a part of it is too deep for Python's parser, the whole piece is skipped."""
    import warnings

    try:
        with warnings.catch_warnings():  # of escape sequences in other people's strings
            warnings.simplefilter("ignore")
            piece.tree = ast.parse(piece.text)
    except SyntaxError as error:
        said = error.msg or "syntax error"
        if _PYTHON_2.search(said) or _PYTHON_2_LINE.search(error.text or ""):
            said = f"Python 2 ({said})"
        elif "too many nested" in said:
            said = f"nested too deeply for Python's parser ({said})"
        source.problem(f"not checked: {said}", error.lineno or 1, piece.cell)
    except (RecursionError, MemoryError):
        source.problem("not checked: nested too deeply for Python's parser", 1, piece.cell)
    except ValueError as error:  # a NUL character
        source.problem(f"not checked: {error}", 1, piece.cell)
    returns = "\r" in piece.text
    piece.lines = [line.rstrip("\r\n") for line in lines_of(piece.text)] if returns else piece.text.split("\n")


def lines_of(text: str) -> list[str]:
    """Return the lines of a text with their ends, as Python's parser counts them."""
    return re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+", text)


def _read_notebook(source: Source) -> None:
    try:
        content = json.loads(source.raw.decode("utf-8-sig"))
        cells = cells_of(content)
        language = content.get("metadata", {}).get("kernelspec", {}).get("language", "python")
        texts = [
            (at, _joined(cell.get("source", cell.get("input", ""))))
            for at, cell in enumerate(cells, 1)
            if cell.get("cell_type") == "code"
        ]
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        source.problem(f"not checked: not a notebook ({type(error).__name__}: {error})", 1)
        return
    if str(language).lower() not in ("python", "python3", "ipython", ""):
        return
    source.notebook = content
    for at, text in texts:
        piece = Piece(text, at)
        source.pieces.append(piece)
        before = len(source.problems)
        _parse(source, piece)
        if len(source.problems) > before and (plain := without_magics(text)) != text:
            del source.problems[before:]
            piece.text = plain
            _parse(source, piece)
            piece.shown = text.splitlines()


def cells_of(content: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the cells of a notebook, which format 3 has in a worksheet."""
    cells: list[dict[str, Any]] = content["cells"] if "cells" in content else content["worksheets"][0]["cells"]
    return cells


def _joined(text: Any) -> str:
    return text if isinstance(text, str) else "".join(text)


def without_magics(text: str) -> str:
    """Return the text of a cell as Python, line by line: shell commands and magics that set variables as calls.

    A line keeps its number; columns in a magic have no meaning.
    """
    lines = text.splitlines()
    first = next((line.strip() for line in lines if line.strip()), "")
    if first.startswith("%%") and not re.match(r"%%(?:time|timeit|capture|prun|memit)\b", first):
        return "\n".join("" for _ in lines)  # another language, or a file that is written
    out = []
    inside = continued = False  # inside a string of several lines; after a magic that ends with a backslash
    for line in lines:
        magic = None if inside else _MAGIC.match(line)
        if continued:
            out.append("")
            continued = line.rstrip().endswith("\\")
            continue
        if magic and not line.lstrip().startswith("#"):
            continued = line.rstrip().endswith("\\")
            out.append(_as_call(magic))
        elif not inside and (_HELP.match(line) or _AUTOMAGIC.match(line)):
            out.append("")
        else:
            out.append(line)
            for quotes in ('"""', "'''"):
                inside ^= line.count(quotes) % 2 == 1
    return "\n".join(out)


def _as_call(magic: re.Match[str]) -> str:
    """Return a magic as Python code, as far as rules may look at it."""
    indent, mark, rest = magic["indent"], magic["mark"], magic["rest"].strip()
    target = (magic["target"] or "").strip()
    if target:
        return f"{indent}{target} None"
    if mark == "%" and (setting := _ENV_MAGIC.match(rest)):
        return f"{indent}__import__('os').environ[{setting[1]!r}] = {setting[2]!r}"
    if mark.startswith("!"):
        return f"{indent}__import__('os').system({rest!r})"
    return f"{indent}pass"
