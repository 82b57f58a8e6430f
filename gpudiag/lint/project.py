"""The files of a project as modules, and how one imports another."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from gpudiag.lint import sources
from gpudiag.lint.sources import Source
from gpudiag.lint.values import Value

if TYPE_CHECKING:
    from gpudiag.lint.program import ProgramEvent
    from gpudiag.lint.rule import Rule

_TELLING = re.compile(
    rb"""^(?!import\b|from\b|def\b|class\b|async\b|[@#\s"'])[^\n]{0,400}\b(?:tf|tensorflow|keras|environ)\b""",
    re.MULTILINE,
)
"""Signs at a module's top level that importing it may do something."""
_SMALL = 4096
"""The size in bytes up to which modules are also read for their constants."""
_OF_TESTS = (f"{os.sep}tests", f"{os.sep}test")
"""Folders of tests, which import what is beside the folder."""
_ROOTS = ("pyproject.toml", "setup.py", "setup.cfg", ".git")


class Words:
    """The words of all rules. A rule applies only to sources with one of its words, and one of those it also needs.

    A search for each is faster than a pattern of all.
    """

    def __init__(self, rules: Iterable[Rule]) -> None:
        groups: dict[tuple[str, ...], set[str]] = {}
        for rule in rules:
            groups.setdefault(rule.also, set()).update(rule.words)
        self._groups = [
            ([word.encode() for word in _fewest(words)], [word.encode() for word in also])
            for also, words in sorted(groups.items())
        ]
        self._all = [(text, text.encode()) for text in sorted(set().union(*groups.values()))]

    def in_bytes(self, raw: bytes) -> bool:
        """Return whether any rule may apply to a file."""
        return any(
            any(word in raw for word in words) and (not also or any(text in raw for text in also))
            for words, also in self._groups
        )

    def found(self, raw: bytes) -> frozenset[str]:
        """Return the words that are in a file."""
        return frozenset(text for text, encoded in self._all if encoded in raw)


def _fewest(words: Iterable[str]) -> list[str]:
    """Return the words that contain no other of the words: a text with a longer one also has the shorter one."""
    kept: list[str] = []
    for word in sorted(words, key=len):
        if not any(text in word for text in kept):
            kept.append(word)
    return kept


@dataclass(eq=False)
class Module:
    """A file and its definitions."""

    source: Source
    known: Words
    namespace: dict[str, Value] = field(default_factory=dict)
    effects: tuple[ProgramEvent, ...] | None = None
    """The certain effects of importing it on TensorFlow's devices and the environment; None: not imported yet."""
    _mentions: dict[re.Pattern[str], bool] = field(default_factory=dict)

    @cached_property
    def text(self) -> str:
        return "\n".join(piece.text for piece in self.source.pieces)

    @cached_property
    def words(self) -> frozenset[str]:
        """The words of rules that the file contains."""
        return self.known.found(self.source.raw)

    def is_telling(self, text: str) -> bool:
        """Return whether a part of the module has a word of a rule; words it also needs may be in another part."""
        return any(word in text for word in self.words)

    def mentions(self, pattern: re.Pattern[str]) -> bool:
        """Return whether the module's text matches ``pattern``; kept, because many programs may import the module."""
        found = self._mentions.get(pattern)
        if found is None:
            found = self._mentions[pattern] = pattern.search(self.text) is not None
        return found

    @property
    def name(self) -> str:
        path = self.source.path
        return path.parent.name if path.stem == "__init__" else path.stem


class Project:
    """Modules by their files; a module that a checked file imports is read if it is in the same project.

    Files are looked for in listings of folders, each read once: a program of a hundred imports asks for a thousand
    files that are not there.
    """

    def __init__(self, words: Words) -> None:
        self.words = words
        """The words that make a file interesting by themselves."""
        self._modules: dict[str, Module] = {}
        """The modules, by their real paths."""
        self._found: dict[tuple[str, str, int], str | None] = {}
        """Files that were found, by the folder of the importing file, the name, and the level of a relative import."""
        self._files: dict[str, Module] = {}
        self._folders: dict[Path, str] = {}
        self._entries: dict[str, frozenset[str]] = {}
        self._top: dict[str, str] = {}

    def module(self, source: Source) -> Module:
        """Return the module of a source that was already read."""
        key = os.path.realpath(source.path)
        found = self._modules.get(key)
        if found is None:
            found = self._modules[key] = Module(source, self.words)
        sources.parse(found.source)
        return found

    def find(self, name: str, level: int, importer: Path) -> Module | None:
        """Return the module of the project that an import means, or None if it is not in the project."""
        file = self.file(name, level, importer)
        return self._load(file) if file else None

    def file(self, name: str, level: int, importer: Path) -> str | None:
        """Return the file of the module that an import means, or None if it is not in the project."""
        folder = self._folders.get(importer)
        if folder is None:
            folder = self._folders[importer] = os.path.dirname(os.path.abspath(importer))  # noqa: PTH100, PTH120  (links stay)
        key = (folder, name, level)
        if key not in self._found:
            self._found[key] = self._find(*key)
        return self._found[key]

    def _find(self, folder: str, name: str, level: int) -> str | None:
        if level:
            for _ in range(level - 1):
                folder = _above(folder)
            return self._at(folder, name)
        top = self._top_of(folder)
        while True:
            if found := self._at(folder, name):
                return found
            if folder in (top, _above(folder)):
                return None
            folder = _above(folder)

    def _at(self, folder: str, name: str) -> str | None:
        *packages, last = name.split(".") if name else ("",)
        for package in packages:
            if package not in self._listed(folder):
                return None
            folder = f"{folder}{os.sep}{package}"
        for file in (f"{last}.py", f"{last}{os.sep}__init__.py") if last else ("__init__.py",):
            path = f"{folder}{os.sep}{file}"
            if file.partition(os.sep)[0] in self._listed(folder) and os.path.isfile(path):  # noqa: PTH113
                return path
        return None

    def tests_beside(self, conftest: Path) -> list[str]:
        """Return the names of the test modules in the folder of a ``conftest.py``, which pytest imports after it."""
        names = [name[:-3] for name in self._listed(str(conftest.parent.absolute())) if name.endswith(".py")]
        return sorted(name for name in names if name.startswith("test_") or name.endswith("_test"))

    def _listed(self, folder: str) -> frozenset[str]:
        """Return the names of the entries of a folder; none if it is not a folder, or cannot be read."""
        found = self._entries.get(folder)
        if found is None:
            try:
                found = frozenset(os.listdir(folder))  # noqa: PTH208
            except OSError:
                found = frozenset()
            self._entries[folder] = found
        return found

    def _load(self, file: str) -> Module:
        if file not in self._files:
            self._files[file] = self._read(Path(file))
        return self._files[file]

    def _read(self, file: Path) -> Module:
        real = os.path.realpath(file)
        if found := self._modules.get(real):
            return found
        source = sources.read(file)
        found = self._modules[real] = Module(source, self.words)
        if len(source.raw) < _SMALL or self.words.in_bytes(source.raw) or _TELLING.search(source.raw):
            sources.parse(source)
        return found

    def _top_of(self, folder: str) -> str:
        """Return the project's root: the nearest folder above that is marked as one, or else the topmost package."""
        if folder not in self._top:
            at = folder
            while at != _above(at) and self._listed(at).isdisjoint(_ROOTS):
                at = _above(at)
            if at == _above(at):
                at = folder
                while ("__init__.py" in self._listed(at) or at.endswith(_OF_TESTS)) and at != _above(at):
                    at = _above(at)
            self._top[folder] = at
        return self._top[folder]


def _above(folder: str) -> str:
    return os.path.dirname(folder)  # noqa: PTH120
