"""Variables that other files set: of login shells, services, Jupyter kernels and conda.

The files are read as text and never run. Because their settings are tried, files of other users are not read, and
settings that name files writable by other users are not tried. Libraries that are loaded into every program are never
tried.
"""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from gpudiag import trust
from gpudiag.record import Record
from gpudiag.run.bisect.parts import entries as entries_of
from gpudiag.run.bisect.parts import is_list, is_relevant
from gpudiag.text import listed, printable

TARGET = "gpudiag.run.bisect.elsewhere:gather"

SHELL, LOGIN, KERNEL, UNIT, CONDA = "shell", "login", "kernel", "unit", "conda"

_LARGEST = 256 << 10
_LOADED_EVERYWHERE = ("LD_PRELOAD", "LD_AUDIT")
_PATHS = ("LD_LIBRARY_PATH", "PATH", "PYTHONPATH")
"""Variables that hold lists of folders; an empty entry is the working directory."""
_MOST_FILES = 200
"""The most files of one kind that are read: a machine may have hundreds of units."""
_SYSTEM: dict[str, tuple[str, ...]] = {
    LOGIN: ("etc/environment", "etc/environment.d/*.conf", "etc/profile", "etc/profile.d/*.sh"),
    SHELL: ("etc/bash.bashrc", "etc/bashrc", "etc/zsh/zshenv"),
    UNIT: ("etc/systemd/system/*.service", "etc/systemd/system/*.service.d/*.conf"),
    KERNEL: ("usr/local/share/jupyter/kernels/*/kernel.json", "usr/share/jupyter/kernels/*/kernel.json"),
}
_OF_THE_USER: dict[str, tuple[str, ...]] = {
    SHELL: (".bashrc", ".zshrc", ".zshenv"),
    LOGIN: (".profile", ".bash_profile", ".bash_login", ".zprofile", ".config/environment.d/*.conf"),
    UNIT: (".config/systemd/user/*.service",),
    KERNEL: (".local/share/jupyter/kernels/*/kernel.json",),
}
_OF_PYTHON: dict[str, tuple[str, ...]] = {
    KERNEL: ("share/jupyter/kernels/*/kernel.json",),
    CONDA: ("etc/conda/activate.d/*.sh",),
}

_ASSIGNED = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_UNIT_LINE = re.compile(r"\s*Environment\s*=\s*(.*)")
_EXPANSION = re.compile(r"\$(?:(\w+)|\{(\w+)(?::?([-+])([^{}]*))?\})")


class FileSetting(Record):
    """A variable that a file sets."""

    name: str
    value: str
    file: str
    line: int
    kind: str
    """``shell``, ``login``, ``kernel``, ``unit`` or ``conda``."""
    untried: str = ""
    """Why the setting is not tried; "" if it is tried."""


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
    for file, shown, kind in _files(root, environ):
        if reason := trust.distrust(file):
            ignored[shown] = reason
        else:
            settings += _of_file(file, shown, kind, environ)
    return Gathered(tuple(settings), ignored)


def _files(root: Path, environ: Mapping[str, str]) -> Iterator[tuple[Path, str, str]]:
    """Yield the files that set variables, each with its name in the report and its kind."""
    home = environ.get("HOME", "")
    prefixes = dict.fromkeys(filter(None, (sys.prefix, environ.get("CONDA_PREFIX", ""))))
    places: list[tuple[Path, dict[str, tuple[str, ...]]]] = [
        (root, _SYSTEM),
        *([(Path(home), _OF_THE_USER)] if home else []),
        *((Path(prefix), _OF_PYTHON) for prefix in prefixes),
    ]
    for base, kinds in places:
        for kind, patterns in kinds.items():
            files = [file for pattern in patterns for file in sorted(base.glob(pattern))]
            for file in files[:_MOST_FILES]:
                shown = f"/{file.relative_to(root)}" if base is root else str(file)
                yield file, printable(shown), kind


def _of_file(file: Path, shown: str, kind: str, environ: Mapping[str, str]) -> Iterator[FileSetting]:
    try:
        text = trust.read(file, _LARGEST).decode(errors="replace")
    except OSError:
        return
    assigned = _of_kernel(text) if kind == KERNEL else _of_lines(text, unit=kind == UNIT)
    variables = dict(environ)
    for number, name, raw in assigned:
        value = expanded(raw, variables)
        if value is None:
            continue
        variables[name] = value  # a later line may use it
        if is_relevant(name):
            yield FileSetting(name, printable(value), shown, number, kind, _untried(name, value, environ))


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


def _of_kernel(text: str) -> Iterator[tuple[int, str, str]]:
    try:
        found = json.loads(text)["env"].items()
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return
    lines = text.splitlines()
    for name, value in found:
        number = next((number for number, line in enumerate(lines, 1) if f'"{name}"' in line), 1)
        yield number, str(name), str(value)


def _of_lines(text: str, *, unit: bool) -> Iterator[tuple[int, str, str]]:
    """Yield line number, name and value of each assignment: ``export A=1 B="$A:2"``."""
    for number, line in enumerate(text.splitlines(), 1):
        wanted = _UNIT_LINE.match(line) if unit else None
        if unit and wanted is None:
            continue
        try:
            words = shlex.split(wanted[1] if wanted else line, comments=True)
        except ValueError:  # a quotation that goes on
            continue
        if words and words[0] in ("export", "declare", "typeset"):
            words = [word for word in words[1:] if word != "-x"]
        assignments = [_ASSIGNED.fullmatch(word) for word in words]
        for match in assignments if all(assignments) else ():  # A=1 program sets it for that program alone
            assert match is not None
            yield number, match[1], match[2]


def expanded(value: str, variables: Mapping[str, str]) -> str | None:
    """Return a value with its variables replaced; None if only a shell can expand it."""

    def of(found: re.Match[str]) -> str:
        own = variables.get(found[1] or found[2], "")
        if found[3] == "+":
            return found[4] if own else ""
        return own or (found[4] or "")

    for _ in range(4):  # ${A:+:${A}} has one in another
        value, before = _EXPANSION.sub(of, value), value
        if value == before:
            break
    if value.startswith("~/"):
        value = f"{variables.get('HOME', '~')}{value[1:]}"
    return None if re.search(r"\$|`", value) else value


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
