"""Configuration files: ``gpudiag.toml``, or ``[tool.gpudiag]`` in ``pyproject.toml``; the nearest one upwards counts.

Keys are the long options of ``gpudiag check`` without their dashes. A value given on the command line or in a
``GPUDIAG_*`` variable goes before the file's.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click

from gpudiag.errors import UsageError, nearest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

OWN_FILE = "gpudiag.toml"
PROJECT_FILE = "pyproject.toml"


_OTHERS = ("GPUDIAG_SIM_", "GPUDIAG_PYTEST")
"""What the variables of the simulator and of the pytest plugin begin with."""

_TAKEN: dict[str, tuple[tuple[type, ...], str]] = {
    "boolean": ((bool,), "true or false"),
    "integer range": ((int,), "a whole number"),
    "seconds": ((int, float), "a number of seconds above 0, such as 30"),
}
"""The TOML types that an option takes, and their name in an error; every other option takes text."""


def find(start: Path) -> Path | None:
    """Return the configuration file for ``start``: the nearest upwards; None where there is none.

    Raises :class:`UsageError` for a pyproject.toml on the way that cannot be read or used.
    """
    for folder in (start, *start.parents):
        if (own := folder / OWN_FILE).is_file():
            return own
        if (project := folder / PROJECT_FILE).is_file():
            try:
                content = _parse(project)
            except UsageError as error:
                raise UsageError(
                    f"{error} gpudiag looks for [tool.gpudiag] there; with --config FILE, or a {OWN_FILE} nearer by "
                    "(it may be empty), it does not."
                ) from None
            if _table(project, content) is not None:
                return project
    return None


def load(path: Path, parameters: Iterable[click.Parameter]) -> dict[str, Any]:
    """Return the values that ``path`` sets, by parameter name.

    Raises :class:`UsageError` that names the file, the key and, for an unknown key, the nearest valid one.
    """
    known = {key_of(parameter): parameter for parameter in parameters if is_configurable(parameter)}
    values = {}
    for key, value in (_table(path, _parse(path)) or {}).items():
        if key not in known:
            raise UsageError(f"{path}: unknown key {key!r}. {nearest(key, known)}")
        parameter = known[key]
        assert parameter.name is not None
        values[parameter.name] = _value(path, key, value, parameter)
    return values


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


def is_configurable(parameter: click.Parameter) -> bool:
    """Tell whether a configuration file may set ``parameter``: everything but ``--help`` and what acts at once."""
    return parameter.expose_value and parameter.name != "config"


def _table(path: Path, content: dict[str, Any]) -> dict[str, Any] | None:
    """Return what the ``content`` of ``path`` says to gpudiag; None for a pyproject.toml without a word to it."""
    if path.name != PROJECT_FILE:
        if "tool" in content:
            raise UsageError(f"{path}: leave the header [tool.gpudiag] out; only in {PROJECT_FILE} it is needed.")
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
        content: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path}: not TOML: {error}.") from None
    return content


def _value(path: Path, key: str, value: Any, parameter: click.Parameter) -> Any:
    several = parameter.nargs == -1 or (isinstance(parameter, click.Option) and parameter.multiple)
    types, wanted = _TAKEN.get(parameter.type.name, ((str,), "a list of texts" if several else "a text in quotes"))
    items = value if several and isinstance(value, list) else [value]
    if any(type(item) not in types for item in items):  # to isinstance() true is a whole number
        raise UsageError(f"{path}: {key!r} must be {wanted}.")
    try:
        if any("\0" in item for item in items if isinstance(item, str)):
            raise UsageError("it holds a NUL character.")
        converted = [parameter.type.convert(item, parameter, None) for item in items]
    except (click.BadParameter, UsageError) as error:
        raise UsageError(f"{path}: bad value for {key!r}: {getattr(error, 'message', error)}") from None
    return converted if several else converted[0]
