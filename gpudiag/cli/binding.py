"""Makes a command's options from the fields of records, and the records from the given values."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import Field, fields
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

import click

from gpudiag.cli.help import GroupedOption
from gpudiag.cli.options import Seconds, variable
from gpudiag.option import DECLARED, Declared

_Command = TypeVar("_Command", bound=Callable[..., Any])


def takes(prefix: str = "", **records: type) -> Callable[[_Command], _Command]:
    """Give a command the options of these dataclasses; it is called with an instance of each, under its name here.

    ``prefix`` is the part of the variables' names after ``GPUDIAG_``. A record's ``TITLE`` stands above its options
    in ``--help``.
    """

    def bind(command: _Command) -> _Command:
        @functools.wraps(command)
        def bound(**values: Any) -> Any:
            made = {
                name: record(**{field.name: values.pop(_parameter(field)) for field in fields(record)})
                for name, record in records.items()
            }
            return command(**values, **made)

        for record in reversed(records.values()):
            for decorate in reversed(list(_options(record, prefix))):
                bound = decorate(bound)
        return bound  # type: ignore[return-value]

    return bind


def _options(record: type, prefix: str) -> Iterator[Callable[[Any], Any]]:
    types = get_type_hints(record)
    for declared_field in fields(record):
        yield _option(declared_field, types[declared_field.name], prefix, getattr(record, "TITLE", ""))


def _parameter(declared_field: Field[Any]) -> str:
    """Return the command-line name of a field, without its unit."""
    return declared_field.name.removesuffix("_s")


def _option(declared_field: Field[Any], kind: Any, prefix: str, group: str) -> Callable[[Any], Any]:
    declared: Declared = declared_field.metadata[DECLARED]
    name, default = _parameter(declared_field), declared_field.default
    flag = f"--{name.replace('_', '-')}"
    more: dict[str, Any] = {} if declared.hidden else variable(prefix + name.upper())
    if declared.metavar:
        more["metavar"] = declared.metavar
    if kind is bool:
        flag = f"{flag}/--no-{flag[2:]}" if default else flag
        more["is_flag"] = True
    else:
        more |= {"type": _type(kind, declared), "multiple": kind in _SEVERAL}
    return click.option(
        *declared.flags,
        flag,
        name,
        cls=GroupedOption,
        group=group,
        default=None if default == () else default,
        show_default=bool(default),
        help=inspect.cleandoc(declared.help),
        hidden=declared.hidden,
        **more,
    )


_SEVERAL = (tuple[str, ...], tuple[Path, ...])
"""Types of fields whose options may be repeated."""


def _type(kind: Any, declared: Declared) -> Any:
    """Return the converter for the values of an option whose field has this type."""
    if declared.type is not None:
        return declared.type
    if declared.choices:
        return click.Choice(declared.choices)
    single = next((of for of in (*get_args(kind), kind) if of in (int, float, str, Path)), str)
    if single is int:
        return click.IntRange(min=None if declared.minimum is None else int(declared.minimum))
    if single is float:
        return Seconds(or_none=declared.minimum == 0)
    if single is Path:
        return click.Path(path_type=Path, exists=True, dir_okay=False)
    return str
