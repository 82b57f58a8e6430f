"""Reads expectations: every key and value is checked before anything runs, so that a gate cannot be half closed."""

from __future__ import annotations

import json
from datetime import date, datetime
from pathlib import Path
from typing import Any

from gpudiag import catalogue, configuration
from gpudiag.errors import UsageError, nearest
from gpudiag.expectations.keys import KEYS, Key
from gpudiag.model.expectations import AREA, Expectations, Waiver
from gpudiag.text import one_line, printable

ACCEPT = "accept"
FLEET = "fleet"
"""The table that ``gpudiag fleet`` reads from the same file: it says nothing of one machine."""
_WAIVER = {
    "finding": 'the name of a finding in quotes, such as "host.driver.old_driver"',
    "reason": "a sentence in quotes: why it is accepted",
    "until": "a date without quotes, such as 2027-01-31: the last day on which it is accepted",
}
_NAMES = {key.name: key for key in KEYS}
_LONGEST = 100


def load(path: Path, *, named: bool) -> Expectations | None:
    """Return the expectations in the file at ``path``; None if it is a configuration file without any of a machine that
    was not ``named``.

    Raises :class:`UsageError`.
    """
    table = configuration.expectations(path, named=named)
    if table is not None and not named and set(table) == {FLEET}:
        return None
    return None if table is None else read(table, printable(str(path)))


def read(table: dict[str, Any], source: str) -> Expectations:
    """Return the expectations in a parsed file, or in its table ``expect``; ``source`` is its name for messages.

    Raises :class:`UsageError` with the file, the key, the value and what to write: for an unknown key, a wrong type and
    a value that no machine can meet.
    """
    values: dict[str, Any] = {}
    for name, value in table.items():
        if name == FLEET and isinstance(value, dict):
            continue
        if name == ACCEPT:
            values[ACCEPT] = tuple(_waivers(value, source))
        elif name in _NAMES:
            values[_NAMES[name].field] = _value(_NAMES[name], value, source)
        else:
            raise UsageError(f"{source}: unknown key {name!r}. {nearest(name, [*_NAMES, ACCEPT])}")
    if not values:
        raise UsageError(f"{source}: expects nothing. Write a key, such as gpus = 4; all: gpudiag docs expectations")
    return Expectations(source=source, **values)


def again(expected: Expectations) -> Expectations:
    """Check expectations from a report; raises :class:`UsageError` as :func:`read` does."""
    values = {key.name: value for key in KEYS if (value := getattr(expected, key.field)) is not None}
    for name, value in values.items():
        _check(_NAMES[name], value, expected.source)
    return expected


def _value(key: Key, value: Any, source: str) -> Any:
    several = tuple in key.comparison.types and isinstance(value, list)
    fits = all(isinstance(item, str) for item in value) if several else type(value) in key.comparison.types
    if not fits:
        raise UsageError(f"{source}: {key.name!r} must be {key.comparison.wanted}; it is {_shown(value)}.")
    value = tuple(value) if several else value
    _check(key, value, source)
    return value


def _check(key: Key, value: Any, source: str) -> None:
    try:
        key.comparison.check(value)
    except ValueError as error:
        reason = str(error).rstrip(".")
        raise UsageError(
            f"{source}: {key.name} = {_shown(value)} cannot be met: {reason}. Write {key.comparison.wanted}."
        ) from None


def _waivers(value: Any, source: str) -> list[Waiver]:
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise UsageError(f"{source}: {ACCEPT!r} must be tables: write [[{ACCEPT}]]; it is {_shown(value)}.")
    return [_waiver(item, f"{source}: {ACCEPT} {number}") for number, item in enumerate(value, 1)]


def _waiver(table: dict[str, Any], where: str) -> Waiver:
    for name in table:
        if name not in _WAIVER:
            raise UsageError(f"{where}: unknown key {name!r}. {nearest(name, _WAIVER)}")
    for name, wanted in _WAIVER.items():
        value = table.get(name)
        right = type(value) is date if name == "until" else isinstance(value, str) and bool(value.strip())
        if not right:
            seen = f"it is {_shown(value)}" if name in table else "it is missing"
            raise UsageError(f"{where}: {name!r} must be {wanted}; {seen}.")
    finding = table["finding"]
    known_findings = _findings(finding)
    if finding not in known_findings:
        near = nearest(finding, known_findings) or "A report names each finding behind its probe."
        raise UsageError(f"{where}: no finding is called {finding!r}. {near}")
    return Waiver(finding, one_line(table["reason"]), table["until"])


def _findings(name: str) -> set[str]:
    """Return the names of possible findings: those of the probe in ``name``, or all."""
    from gpudiag.expectations.judging import KINDS
    from gpudiag.run import views

    own = {f"{AREA}.{key.name}.{kind}" for key in KEYS for kind in KINDS}
    probe = name.rpartition(".")[0]
    entries = [entry for entry in catalogue.entries() if entry.name == probe] or catalogue.entries()
    return own | {f"{entry.name}.{kind.name}" for entry in entries for kind in views.kinds(entry)}


def _shown(value: Any) -> str:
    """Return a value in TOML notation, cut short."""
    if isinstance(value, bool | str | list | tuple | dict):
        text = json.dumps(value, ensure_ascii=False, default=str)
    else:
        text = value.isoformat() if isinstance(value, date | datetime) else str(value)
    text = one_line(text)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
