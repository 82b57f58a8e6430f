"""Files that set variables: of login shells, services, Jupyter kernels, conda and environment modules.

They are read as text and never run. A file that another user can have written is not read.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path

from gpudiag import trust
from gpudiag.facts import read_text
from gpudiag.hardware.processes import environment
from gpudiag.knowledge.settings_of_files import entries, is_list, is_relevant
from gpudiag.model.facts import Provenance, ProvenanceKind, VariableProvenance
from gpudiag.record import Record
from gpudiag.text import printable

SHELL, LOGIN, UNIT = ProvenanceKind.SHELL.value, ProvenanceKind.LOGIN.value, ProvenanceKind.UNIT.value
KERNEL, CONDA = ProvenanceKind.KERNEL.value, ProvenanceKind.CONDA.value
_LARGEST = 256 << 10
_MOST_SOURCED = 400
_OF_ACTIVATION = ("PATH", "PYTHONHOME", "VIRTUAL_ENV", "VIRTUAL_ENV_PROMPT")
"""Variables that the ``activate`` of every environment sets."""
_BETWEEN = (";", ";;", "&", "&&", "|", "||", "then", "else", "do", "{")
"""What stands before a command in a line of a shell."""
_INITS = ("systemd", "init", "launchd", "runit", "openrc-init")
_PATH = re.compile(r"(?<![\w.+@/-])(?:/[\w.+@-]{1,255}){2,99}")
_NAME = re.compile(r"\b[A-Z][A-Z0-9_]{2,}\b")
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
    CONDA: ("etc/conda/activate.d/*.sh", "bin/activate"),
}

_ASSIGNED = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_SOURCED = re.compile(
    r"^[ \t]{0,99}(?:source|\.)[ \t]{1,9}(?P<file>\"[^\"\n]{1,999}\"|'[^'\n]{1,999}'|[^\s;&|]{1,999})", re.MULTILINE
)
_UNIT_LINE = re.compile(r"\s*Environment\s*=\s*(.*)")
_EXPANSION = re.compile(r"\$(?:(\w+)|\{(\w+)(?::?([-+])([^{}]*))?\})")


class FileSetting(Record):
    """A variable that a file sets."""

    name: str
    value: str
    file: str
    line: int
    kind: str
    """A value of :class:`gpudiag.model.facts.ProvenanceKind`."""
    untried: str = ""
    """Why the setting is not tried; "" if it is tried."""
    added: str = ""
    """The value without what the variable had before, as in ``/opt/lib`` of ``/opt/lib:$LD_LIBRARY_PATH``."""


def files(root: Path, environ: Mapping[str, str]) -> Iterator[tuple[Path, str, str]]:
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


def of_user(home: Path, environ: Mapping[str, str], names: frozenset[str]) -> Iterator[FileSetting]:
    """Yield what the start-up files of shells in ``home`` set of ``names``, as :func:`of_file` does."""
    seen: set[Path] = set()
    for kind in (SHELL, LOGIN):
        for pattern in _OF_THE_USER[kind]:
            for file in sorted(home.glob(pattern))[:_MOST_FILES]:
                found = of_file(file, printable(str(file)), kind, environ, seen, names=names)
                yield from (setting for setting in found if setting.name in names)


def of_file(
    file: Path,
    shown: str,
    kind: str,
    environ: Mapping[str, str],
    seen: set[Path],
    *,
    names: frozenset[str] | None = None,
) -> Iterator[FileSetting]:
    """Yield what a file sets that may matter, and then what the files that it names after ``source`` or ``.`` set.

    A file in which none of ``names`` occurs is not parsed. The files in ``seen`` are left out; those read are added.
    """
    if file in seen or len(seen) > _MOST_SOURCED:
        return
    seen.add(file)
    try:
        text = trust.read(file, _LARGEST).decode(errors="replace")
    except OSError:
        return
    variables = dict(environ)
    assigned: Iterable[tuple[int, str, str]] = ()
    if names is None or any(name in text for name in names):
        assigned = _of_kernel(text) if kind == KERNEL else _of_lines(text, unit=kind == UNIT)
    for number, name, raw in assigned:
        value = expanded(raw, variables)
        if value is None:
            continue
        added = expanded(raw, {**variables, name: ""}) or ""
        variables[name] = value  # a later line may use it
        if is_relevant(name) and not (file.name == "activate" and name in _OF_ACTIVATION):
            yield FileSetting(name, printable(value), shown, number, kind, added=printable(added))
    for found in _SOURCED.finditer(text) if kind in (SHELL, LOGIN, CONDA) else ():
        path = expanded(found["file"].strip("\"'"), variables)
        if path and path.startswith("/"):
            yield from of_file(Path(path), printable(path), kind, environ, seen, names=names)


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
    """Yield line number, name and value of each assignment: ``export A=1 B="$A:2"``, ``[ -d /opt ] && export A=1``."""
    for number, line in enumerate(text.splitlines(), 1):
        wanted = _UNIT_LINE.match(line) if unit else None
        if unit and wanted is None:
            continue
        try:
            commands = [shlex.split(wanted[1], comments=True)] if wanted else list(_commands(line))
        except ValueError:  # a quotation that goes on
            continue
        for words in commands:
            exported = words[:1] and words[0] in ("export", "declare", "typeset")
            assignments = [_ASSIGNED.fullmatch(word) for word in words[bool(exported) :] if word != "-x"]
            for match in assignments if all(assignments) else ():  # A=1 program sets it for that program alone
                assert match is not None
                yield number, match[1], match[2]


def _commands(line: str) -> Iterator[list[str]]:
    """Yield the words of each simple command in a line of a shell."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|")
    lexer.whitespace_split = True
    for is_between, words in groupby(lexer, lambda word: word in _BETWEEN):
        if not is_between:
            yield list(words)


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


def provenance(environ: Mapping[str, str], root: Path = Path("/")) -> tuple[VariableProvenance, ...]:
    """Return the places that set the variables of ``environ`` that may matter, as they are there."""
    names = frozenset(name for name in environ if is_relevant(name) and name != "PATH")
    seen: set[Path] = set()
    found = [
        place
        for file, shown, kind in (files(root, environ) if names else ())
        for setting in of_file(file, shown, kind, environ, seen, names=names)
        for place in _in_force(setting, environ)
    ]
    found += [*_of_conda(environ), *_of_modules(environ)]
    of_files = {place.name for place in found}
    found += [place for place in _of_container(environ, root) if place.name not in of_files]
    return tuple(dict.fromkeys(found))


def _in_force(setting: FileSetting, environ: Mapping[str, str]) -> Iterator[VariableProvenance]:
    """Yield what ``environ`` has of a setting: the whole value, or entries of a list."""
    value = environ.get(setting.name)
    source = Provenance(ProvenanceKind(setting.kind), f"{setting.file} line {setting.line}")
    if value is None:
        return
    if not is_list(setting.name):
        if printable(value) == setting.value:
            yield VariableProvenance(setting.name, "", source)
        return
    here = {os.path.normpath(entry) for _, entry in entries(setting.name, value) if entry}
    for _, entry in entries(setting.name, setting.added):
        if entry and os.path.normpath(entry) in here:
            yield VariableProvenance(setting.name, os.path.normpath(entry), source)


def _of_container(environ: Mapping[str, str], root: Path) -> Iterator[VariableProvenance]:
    """Yield the variables that the first process of this pid namespace was started with, unless it is a host's init.

    In a container that is what its image sets, or what it was started with.
    """
    command = read_text(root / "proc/1/comm").strip()
    first = environment(root / "proc/1") if command not in _INITS else {}
    source = Provenance(ProvenanceKind.CONTAINER, printable(command))
    for name, value in environ.items():
        if is_relevant(name) and name != "PATH" and value and first.get(name) == value:
            folders = [os.path.normpath(entry) for _, entry in entries(name, value) if entry]
            yield from (VariableProvenance(name, folder, source) for folder in folders or [""])


def _of_conda(environ: Mapping[str, str]) -> Iterator[VariableProvenance]:
    """Yield the variables that ``conda env config vars set`` keeps in the active environment."""
    prefix = environ.get("CONDA_PREFIX", "")
    if not prefix.startswith("/"):
        return
    try:
        kept = json.loads(trust.read(Path(prefix, "conda-meta/state"), _LARGEST))["env_vars"].items()
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return
    source = Provenance(ProvenanceKind.CONDA_VARIABLES, printable(prefix))
    for name, value in kept:
        text = printable(str(value))
        setting = FileSetting(str(name), text, prefix, 1, source.kind.value, added=text)
        for found in _in_force(setting, environ) if is_relevant(str(name)) else ():
            yield VariableProvenance(found.name, found.entry, source)


def _of_modules(environ: Mapping[str, str]) -> Iterator[VariableProvenance]:
    """Yield the variables that the text of a loaded environment module names, with its name.

    Its files are in ``_LMFILES_``, in the order of the names in ``LOADEDMODULES``. A folder is a module's if the text
    names the variable and a path that the folder begins with; nothing of Tcl or Lua is run.
    """
    loaded, listed = environ.get("LOADEDMODULES", "").split(":"), environ.get("_LMFILES_", "").split(":")
    for module, file in zip(loaded, listed) if len(loaded) == len(listed) else ():  # noqa: B905  # they are
        try:
            text = trust.read(Path(file), _LARGEST).decode(errors="replace") if file.startswith("/") else ""
        except OSError:
            continue
        named = [path.rstrip("/") for path in _PATH.findall(text)]
        for name in dict.fromkeys(_NAME.findall(text)):
            value = environ.get(name)
            if value is None or not is_relevant(name):
                continue
            source = Provenance(ProvenanceKind.MODULE, printable(module))
            if not is_list(name) and printable(value) in text:
                yield VariableProvenance(name, "", source)
            for _, entry in entries(name, value):
                folder = os.path.normpath(entry) if entry else ""
                if folder and any(f"{folder}/".startswith(f"{path}/") for path in named):
                    yield VariableProvenance(name, folder, source)
