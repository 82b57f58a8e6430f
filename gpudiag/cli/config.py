"""The options that a configuration file sets (:mod:`gpudiag.configuration`).

Keys are the long options of ``gpudiag check`` without their dashes; those of ``gpudiag lint`` are in the table
``lint``. A value given on the command line or in a ``GPUDIAG_*`` variable overrides the file's.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from gpudiag.errors import UsageError, nearest
from gpudiag.text import say

if sys.version_info >= (3, 11):
    pass
else:
    pass
from gpudiag.configuration import SECTIONS, ConfigurationFile, find, parsed, table_of

_OTHERS = ("GPUDIAG_SIM_", "GPUDIAG_PYTEST")
"""Prefixes of the variables of the simulator and of the pytest plugin."""
_TAKEN: dict[str, tuple[tuple[type, ...], str]] = {
    "boolean": ((bool,), "true or false"),
    "integer range": ((int,), "a whole number"),
    "seconds": ((int, float), "a number of seconds above 0, such as 30"),
}
"""The TOML types that an option accepts, with their names in errors; every other option accepts a string."""


def take_defaults(
    context: click.Context, path: Path | None, parameters: Sequence[click.Parameter], section: str = ""
) -> ConfigurationFile:
    """Take the defaults of these parameters from the file at ``path``, or else from the nearest one; return that
    file."""
    found = ConfigurationFile(path)
    if path is None:
        with contextlib.suppress(FileNotFoundError):  # the working directory was deleted
            found = find(Path.cwd())
    for note in found.ignored:
        say(f"gpudiag: note: {note}")
    if found.file is not None:
        context.default_map = load(found.file, parameters, found=path is None, section=section)
    return found


def load(path: Path, parameters: Iterable[click.Parameter], *, found: bool, section: str = "") -> dict[str, Any]:
    """Return the values that ``path`` sets, by parameter name; with ``section``, the values of that table.

    Raises :class:`UsageError`, which names the file, the key and, for an unknown key, the nearest valid one. A file
    that was ``found``, not named, may not name a file outside its own folder.
    """
    parameters_by_key = {key_of(parameter): parameter for parameter in parameters if is_configurable(parameter)}
    values = {}
    table = table_of(path, parsed(path)) or {}
    for name in SECTIONS:
        if not isinstance(table.get(name, {}), dict):
            raise UsageError(f"{path}: {name!r} must be a table, such as [tool.gpudiag.{name}].")
    own = {key: value for key, value in table.items() if key not in SECTIONS}
    table = table.get(section, {}) if section else own
    for key, value in table.items():
        if key not in parameters_by_key:
            raise UsageError(f"{path}: unknown key {key!r}. {nearest(key, parameters_by_key)}")
        parameter = parameters_by_key[key]
        assert parameter.name is not None
        values[parameter.name] = _value(path, key, value, parameter)
        if found and isinstance(parameter.type, click.Path):
            _keep_inside(path, key, values[parameter.name])
    return values


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
    known_variables = {
        parameter.envvar
        for command in commands
        for parameter in command.params
        if isinstance(parameter, click.Option) and isinstance(parameter.envvar, str)
    }
    return [
        f"{name} sets no option. {nearest(name, known_variables, most=1)}"
        for name in sorted(environment)
        if name.startswith("GPUDIAG_") and not name.startswith(_OTHERS) and name not in known_variables
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
