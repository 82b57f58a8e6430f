"""Configuration files: ``gpudiag.toml``, or ``[tool.gpudiag]`` in ``pyproject.toml``; the nearest one upwards is used.

Keys are the long options of ``gpudiag check`` without their dashes; those of ``gpudiag lint`` are in the table
``lint``. A value given on the command line or in a ``GPUDIAG_*`` variable overrides the file's.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import re
import stat
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from gpudiag.errors import UsageError, nearest
from gpudiag.hardware.locks import user_name
from gpudiag.text import say

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

OWN_FILE = "gpudiag.toml"
PROJECT_FILE = "pyproject.toml"


_LARGEST = 256 << 10
"""Bytes of the largest file that is read."""
_MOST_DOTS = 1000
"""In a line: tomllib takes a minute for a key of 30,000 parts (Python 3.11.7)."""

_OTHERS = ("GPUDIAG_SIM_", "GPUDIAG_PYTEST")
"""What the variables of the simulator and of the pytest plugin begin with."""

_TAKEN: dict[str, tuple[tuple[type, ...], str]] = {
    "boolean": ((bool,), "true or false"),
    "integer range": ((int,), "a whole number"),
    "seconds": ((int, float), "a number of seconds above 0, such as 30"),
}
"""The TOML types that an option takes, and their name in an error; every other option takes a string."""


@dataclass(frozen=True)
class Found:
    """The result of a search for a configuration file."""

    file: Path | None
    ignored: tuple[str, ...] = ()
    """A sentence for each file on the way that was not used, because other users may have written it."""


def take_defaults(
    context: click.Context, path: Path | None, parameters: Sequence[click.Parameter], section: str = ""
) -> Found:
    """Take the defaults of these parameters from the file at ``path``, or from the one that is found; return that."""
    found = Found(path)
    if path is None:
        with contextlib.suppress(FileNotFoundError):  # the working directory was deleted
            found = find(Path.cwd())
    for note in found.ignored:
        say(f"gpudiag: note: {note}")
    if found.file is not None:
        context.default_map = load(found.file, parameters, found=path is None, section=section)
    return found


def find(start: Path) -> Found:
    """Return the configuration file for ``start``: the nearest upwards that only this user or root can have written.

    Raises :class:`UsageError` for a pyproject.toml on the way that cannot be read or used.
    """
    ignored = []
    for folder in (start, *start.parents):
        for file in (folder / OWN_FILE, folder / PROJECT_FILE):
            if not os.path.isfile(file):  # noqa: PTH113  (Path.is_file raises for a folder that may not be searched)
                continue
            if distrust := _distrust(file):
                if file.name == OWN_FILE or _mentions(file):
                    ignored.append(f"{file} is ignored: {distrust}. To use it: --config {file}")
            elif file.name == OWN_FILE or _is_for_gpudiag(file):
                return Found(file, tuple(ignored))
    return Found(None, tuple(ignored))


def _is_for_gpudiag(project: Path) -> bool:
    try:
        content = _parse(project)
    except UsageError as error:
        raise UsageError(
            f"{error} gpudiag looks for [tool.gpudiag] there. Fix that file, use --config FILE, or put a {OWN_FILE} "
            "(it may be empty) beside it, which is read in its place."
        ) from None
    return _table(project, content) is not None


def _distrust(file: Path) -> str:
    """Return why another user may have written ``file``; "" if its owners and modes show that this user or root did.

    The rules are git's: root trusts its own files and, under sudo, those of the user who called. Of a link both ends
    are checked. In a folder that everybody can write to, others can put files, unless it is sticky, as /tmp is.
    """
    if not hasattr(os, "geteuid"):
        return ""
    own = {os.geteuid(), 0}
    with contextlib.suppress(KeyError, ValueError):
        own |= {int(os.environ["SUDO_UID"])} if os.geteuid() == 0 else set()
    try:
        ends = (file.lstat(), file.stat())
        folders = (file.parent.stat(), file.resolve().parent.stat())
    except (OSError, RuntimeError) as error:
        return f"its owner cannot be read ({error})"
    for status in ends:
        if status.st_uid not in own:
            return f"it belongs to {user_name(status.st_uid)}"
    if ends[1].st_mode & stat.S_IWOTH:
        return "everybody can write to it"
    if any(status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX for status in folders):
        return "everybody can write to its folder"
    return ""


def _mentions(project: Path) -> bool:
    """Return whether another user's pyproject.toml has a table for gpudiag; it is not parsed."""
    try:
        with project.open("rb") as stream:
            return (
                re.search(rb"^[ \t]*\[[ \t]*tool[ \t]*\.[ \t]*gpudiag\b", stream.read(_LARGEST), re.MULTILINE)
                is not None
            )
    except OSError:
        return False


EXPECT = "expect"
SECTIONS = ("lint", EXPECT)
"""Tables inside of gpudiag's own: for ``gpudiag lint``, and what a deployment expects; the other keys are those of
``gpudiag check``."""


def load(path: Path, parameters: Iterable[click.Parameter], *, found: bool, section: str = "") -> dict[str, Any]:
    """Return the values that ``path`` sets, by parameter name; with ``section`` those of that table.

    Raises :class:`UsageError`, which names the file, the key and, for an unknown key, the nearest valid one. A file
    that was ``found``, not named, may not name a file outside its own folder.
    """
    known = {key_of(parameter): parameter for parameter in parameters if is_configurable(parameter)}
    values = {}
    table = _table(path, _parse(path)) or {}
    for name in SECTIONS:
        if not isinstance(table.get(name, {}), dict):
            raise UsageError(f"{path}: {name!r} must be a table, such as [tool.gpudiag.{name}].")
    own = {key: value for key, value in table.items() if key not in SECTIONS}
    table = table.get(section, {}) if section else own
    for key, value in table.items():
        if key not in known:
            raise UsageError(f"{path}: unknown key {key!r}. {nearest(key, known)}")
        parameter = known[key]
        assert parameter.name is not None
        values[parameter.name] = _value(path, key, value, parameter)
        if found and isinstance(parameter.type, click.Path):
            _keep_inside(path, key, values[parameter.name])
    return values


def expectations(path: Path, *, named: bool) -> dict[str, Any] | None:
    """Return the table of expectations in ``path``: of a configuration file its table ``expect``, else the whole file.

    None if a configuration file has no such table and was not ``named`` for it. Raises :class:`UsageError`.
    """
    content = _parse(path)
    if path.name not in (OWN_FILE, PROJECT_FILE):
        return content
    table = (_table(path, content) or {}).get(EXPECT)
    header = f"[tool.gpudiag.{EXPECT}]" if path.name == PROJECT_FILE else f"[{EXPECT}]"
    if table is None and named:
        raise UsageError(f"{path}: has no table {header}. Write one, or name a file of expectations alone.")
    if table is not None and not isinstance(table, dict):
        raise UsageError(f"{path}: {EXPECT!r} must be a table: {header}.")
    return table


def _keep_inside(path: Path, key: str, files: Any) -> None:
    """Raise :class:`UsageError` for a file outside the folder of the configuration file ``path``."""
    root = os.path.realpath(path.parent)
    for file in files if isinstance(files, list) else [files]:
        if os.path.commonpath([root, os.path.realpath(file)]) != root:
            raise UsageError(
                f"{path}: {key!r}: {file} is not in {path.parent}. A configuration file that gpudiag found by itself "
                f"may name only files in its own folder: name this one on the command line, or add --config {path}"
            )


def misspelt_variables(environment: Mapping[str, str], commands: Iterable[click.Command]) -> list[str]:
    """Return a sentence for each ``GPUDIAG_*`` variable that sets no option of ``commands``."""
    known = {
        parameter.envvar
        for command in commands
        for parameter in command.params
        if isinstance(parameter, click.Option) and isinstance(parameter.envvar, str)
    }
    return [
        f"{name} sets no option. {nearest(name, known, most=1)}"
        for name in sorted(environment)
        if name.startswith("GPUDIAG_") and not name.startswith(_OTHERS) and name not in known
    ]


def key_of(parameter: click.Parameter) -> str:
    """Return the key that stands for ``parameter`` in a configuration file, such as ``require-gpus``."""
    return (parameter.name or "").rstrip("_").replace("_", "-")


def value_text(value: Any) -> str:
    """Return the value of a parameter as it is written on a command line."""
    if isinstance(value, bool):
        return str(value).lower()
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def is_configurable(parameter: click.Parameter) -> bool:
    """Return whether a configuration file may set ``parameter``: all but ``--help`` and options that act at once."""
    return parameter.expose_value and parameter.name != "config" and not getattr(parameter, "hidden", False)


def _table(path: Path, content: dict[str, Any]) -> dict[str, Any] | None:
    """Return what the ``content`` of ``path`` sets for gpudiag; None for a pyproject.toml that does not name it."""
    if path.name != PROJECT_FILE:
        if "tool" in content:
            raise UsageError(f"{path}: remove the header [tool.gpudiag]: only {PROJECT_FILE} needs it.")
        return content
    tool = content.get("tool", {})
    if not isinstance(tool, dict):
        raise UsageError(f"{path}: 'tool' must be a table, such as [tool.gpudiag].")
    if "gpudiag" not in tool:
        for name in tool:
            if difflib.SequenceMatcher(None, name.lower(), "gpudiag").ratio() > 0.8:
                raise UsageError(f"{path}: unknown table [tool.{name}]. Did you mean 'gpudiag'?")
        return None
    own = tool["gpudiag"]
    if not isinstance(own, dict):
        raise UsageError(f"{path}: 'tool.gpudiag' must be one table: [tool.gpudiag].")
    return own


def _parse(path: Path) -> dict[str, Any]:
    try:
        if not path.is_file():
            raise UsageError(f"{path}: cannot be read: it is not a regular file.")
        with path.open("rb") as stream:
            text = stream.read(_LARGEST + 1)
        if len(text) > _LARGEST:
            raise UsageError(f"{path}: larger than {_LARGEST >> 10} KiB, so it is not read.")
        if any(line.count(b".") > _MOST_DOTS for line in text.splitlines()):
            raise UsageError(f"{path}: a line has more than {_MOST_DOTS} dots, so it is not read.")
        content: dict[str, Any] = tomllib.loads(text.decode("utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path}: not TOML: {error}.") from None
    return content


def _value(path: Path, key: str, value: Any, parameter: click.Parameter) -> Any:
    several = parameter.nargs == -1 or (isinstance(parameter, click.Option) and parameter.multiple)
    types, wanted = _TAKEN.get(parameter.type.name, ((str,), "a list of strings" if several else "a string in quotes"))
    items = value if several and isinstance(value, list) else [value]
    if any(type(item) not in types for item in items):  # for isinstance() true is a whole number
        raise UsageError(f"{path}: {key!r} must be {wanted}.")
    try:
        if any("\0" in item for item in items if isinstance(item, str)):
            raise UsageError("it holds a NUL character.")
        converted = [parameter.type.convert(item, parameter, None) for item in items]
    except (click.BadParameter, UsageError) as error:
        raise UsageError(f"{path}: bad value for {key!r}: {getattr(error, 'message', error)}") from None
    return converted if several else converted[0]
