"""The files of a project as modules, and how one imports another."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from gpudiag.lint import sources
from gpudiag.lint.sources import Source
from gpudiag.lint.values import Value

if TYPE_CHECKING:
    from gpudiag.lint.program import Event

_TELLING = re.compile(
    rb"""^(?!import\b|from\b|def\b|class\b|async\b|[@#\s"'])[^\n]{0,400}\b(?:tf|tensorflow|keras|environ)\b""",
    re.MULTILINE,
)
"""What a module has at its top level if an import of it may do something."""
_SMALL = 4096
"""Bytes: modules up to this are read for their constants, too."""
_ROOTS = ("pyproject.toml", "setup.py", "setup.cfg", ".git")


@dataclass(eq=False)
class Module:
    """A file and what it defines."""

    source: Source
    namespace: dict[str, Value] = field(default_factory=dict)
    effects: tuple[Event, ...] | None = None
    """What an import of it surely does to TensorFlow's devices and to the environment; None: not imported yet."""

    @cached_property
    def text(self) -> str:
        return "\n".join(piece.text for piece in self.source.pieces)

    @property
    def name(self) -> str:
        path = self.source.path
        return path.parent.name if path.stem == "__init__" else path.stem


class Project:
    """Modules by their files; a module that a checked file imports is read if it is in the same project."""

    def __init__(self, words: re.Pattern[bytes]) -> None:
        self.words = words
        """What a file has that is of interest by itself."""
        self._modules: dict[str, Module | None] = {}
        self._top: dict[Path, Path] = {}

    def module(self, source: Source) -> Module:
        """Return the module of a source that was read."""
        key = os.path.realpath(source.path)
        found = self._modules.get(key)
        if found is None:
            sources.parse(source)
            found = self._modules[key] = Module(source)
        sources.parse(found.source)
        return found

    def find(self, name: str, level: int, importer: Path) -> Module | None:
        """Return the module of the project that an import means, or None if it is not in the project."""
        folder = Path(os.path.abspath(importer)).parent  # noqa: PTH100  (links stay)
        if level:
            for _ in range(level - 1):
                folder = folder.parent
            return self._at(folder, name)
        top = self._top_of(folder)
        while True:
            if found := self._at(folder, name):
                return found
            if folder in (top, folder.parent):
                return None
            folder = folder.parent

    def _at(self, folder: Path, name: str) -> Module | None:
        base = folder.joinpath(*name.split(".")) if name else folder
        for file in (Path(f"{base}.py"), base / "__init__.py") if name else (base / "__init__.py",):
            key = str(file)
            if key not in self._modules:
                self._modules[key] = self._load(file)
            if found := self._modules[key]:
                return found
        return None

    def _load(self, file: Path) -> Module | None:
        real = os.path.realpath(file)
        if found := self._modules.get(real):
            return found
        if not file.is_file():
            return None
        source = sources.read(file)
        if len(source.raw) < _SMALL or self.words.search(source.raw) or _TELLING.search(source.raw):
            sources.parse(source)
        found = self._modules[real] = Module(source)
        return found

    def _top_of(self, folder: Path) -> Path:
        """Return the folder of the project: the nearest upwards that says so, or the highest that is a package."""
        if folder not in self._top:
            at = folder
            while at != at.parent and not any((at / one).exists() for one in _ROOTS):
                at = at.parent
            if at == at.parent:
                at = folder
                while (at / "__init__.py").exists() and at != at.parent:
                    at = at.parent
            self._top[folder] = at
        return self._top[folder]
