"""Variables that other files set: of login shells, services, Jupyter kernels and conda.

The files are read as text and never run. Because their settings are tried, files of other users are not read, and
settings that name files writable by other users are not tried. Libraries that are loaded into every program are never
tried.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from gpudiag import trust
from gpudiag.facts.start_files import FileSetting, files, of_file
from gpudiag.knowledge.settings_of_files import entries as entries_of
from gpudiag.knowledge.settings_of_files import is_list
from gpudiag.record import Record
from gpudiag.text import listed, printable

TARGET = "gpudiag.run.bisect.elsewhere:gather"

_LOADED_EVERYWHERE = ("LD_PRELOAD", "LD_AUDIT")
_PATHS = ("LD_LIBRARY_PATH", "PATH", "PYTHONPATH")
"""Variables that hold lists of folders; an empty entry is the working directory."""


class Gathered(Record):
    """The variables that files on this machine set."""

    settings: tuple[FileSetting, ...] = ()
    ignored: dict[str, str] = {}
    """The files that were not read because another user can have written them, each with the reason."""


def gather(argument: dict[str, Any]) -> bytes:
    """Return :class:`Gathered` of this machine as JSON.

    ``argument["variables"]`` is the environment, and ``argument["root"]`` replaces / for the system's own files.
    """
    return msgspec.json.encode(gathered(Path(argument.get("root", "/")), argument["variables"]))


def gathered(root: Path, environ: Mapping[str, str]) -> Gathered:
    """Return what the files under ``root`` and in the home folder set that may matter, the system's first."""
    settings: list[FileSetting] = []
    ignored: dict[str, str] = {}
    seen: set[Path] = set()
    for file, shown, kind in files(root, environ):
        if reason := trust.distrust(file):
            ignored[shown] = reason
        else:
            for setting in of_file(file, shown, kind, environ, seen):
                reason = _untried(setting.name, setting.value, environ)
                settings.append(msgspec.structs.replace(setting, untried=reason))
    return Gathered(tuple(settings), ignored)


def _untried(name: str, value: str, environ: Mapping[str, str]) -> str:
    """Return why a setting is not tried: it would load files that another user can write, or code into every
    program."""
    return "it loads a library into every program" if name in _LOADED_EVERYWHERE else distrust(name, value, environ)


def distrust(name: str, value: str, environ: Mapping[str, str]) -> str:
    """Return why a variable must not be tried: with it a program would load files that another user can write.

    Paths that the variable already names in ``environ`` count as this user's choice.
    """
    for word in dict.fromkeys(_named_paths(name, value)):
        for path in () if word in _named_paths(name, environ.get(name, "")) else _loaded_from(word):
            if reason := trust.distrust(path):
                return f"{path.absolute()}: {reason}"
    return ""


def _named_paths(name: str, value: str) -> list[Path]:
    """Return the paths in the value of a variable; one that begins with / may also have spaces in it."""
    if name in _PATHS:
        return [Path(entry) for _, entry in entries_of(name, value)]
    words = re.split(r"[:;,=\s]+", value) + ([value] if value.startswith("/") else [])
    return [Path(word) for word in words if "/" in word]


def _loaded_from(path: Path) -> Iterator[Path]:
    """Yield a path that a variable names and, if it is a folder, the files in it."""
    yield path
    with contextlib.suppress(OSError):
        yield from path.iterdir()


def untried(gathered: Gathered) -> tuple[str, ...]:
    """Return a line for each setting or file that is not tried, with the reason."""
    subjects: dict[str, list[str]] = {}
    for file, reason in gathered.ignored.items():
        subjects.setdefault(reason, []).append(file)
    for setting in gathered.settings:
        if setting.untried:
            subjects.setdefault(setting.untried, []).append(f"{setting.name} of {setting.file} line {setting.line}")
    return tuple(f"{listed(names)}: {printable(reason)}" for reason, names in subjects.items())


def missing(found: Iterable[FileSetting], variables: Mapping[str, str]) -> tuple[FileSetting, ...]:
    """Return the settings to try that are not in effect: the variable is unset, or a list lacks an entry."""
    lacking = []
    for setting in found:
        if setting.untried:
            continue
        own = variables.get(setting.name)
        if own is None:
            lacking.append(setting)
        elif is_list(setting.name):
            here = {entry for _, entry in entries_of(setting.name, own)}
            if any(entry and entry not in here for _, entry in entries_of(setting.name, setting.value)):
                lacking.append(setting)
    return tuple(lacking)
