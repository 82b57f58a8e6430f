"""Every probe that ships: found by walking ``gpudiag.probes``, checked for form, selected by name, area or glob."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

import gpudiag.probes
from gpudiag.errors import CatalogueError, UsageError, nearest
from gpudiag.hostfacts import Facts
from gpudiag.model import Finding, Judged, Limits
from gpudiag.probe import HEADINGS, MEANING, Faults, GpuReading, Kind, Probe, Reading, Verified, as_of_today

_PACKAGE = gpudiag.probes.__name__

WITHOUT_DOCSTRINGS = sys.flags.optimize >= 2
"""True where ``python -OO`` or ``PYTHONOPTIMIZE=2`` strips the docstrings: they are then read from the source."""


_MEASURED = ("PROBE", "Fault", "Reading", "judge")
_HOST = ("PROBE", "judge", "figure")


@dataclass(frozen=True)
class Entry:
    """One probe of the catalogue."""

    name: str
    """``<area>.<name>``."""
    module: ModuleType
    probe: Probe
    kinds: tuple[Kind, ...]
    reading: type[Reading] | None
    """None for a host probe, which judges facts alone."""

    @property
    def peered(self) -> bool:
        """True for a probe that needs a second process."""
        return hasattr(self.module, "peer")

    @property
    def area(self) -> str:
        return self.name.partition(".")[0]

    @property
    def summary(self) -> str:
        """The first line of the probe's docstring."""
        return documentation(self.module).partition("\n")[0]

    def decoded(self, reading: Any) -> Reading:
        """Return the record of a reading that is plain JSON, also of one that an older gpudiag saved.

        Raises ``msgspec.ValidationError`` if it is not a reading of this probe.
        """
        assert self.reading is not None
        if not issubclass(self.reading, GpuReading) or not isinstance(reading, dict):
            return msgspec.convert(reading, self.reading)
        plain = as_of_today(reading)
        listed = msgspec.convert({name: plain[name] for name in ("given", "seen") if name in plain}, GpuReading)
        return msgspec.convert(plain, self.reading) if listed.complete else listed

    def judge(self, reading: dict[str, Any] | Reading | None, facts: Facts, limits: Limits) -> Judged:
        """Judge a reading (plain JSON or a record) under ``facts`` and ``limits``.

        Raises ``msgspec.ValidationError`` if plain JSON is not this probe's reading.
        """
        table: tuple[tuple[str, ...], ...] = ()
        if self.reading is None:
            judgements = list(self.module.judge(facts, limits))
            figure = str(self.module.figure(facts))
        else:
            record = reading if isinstance(reading, Reading) else self.decoded(reading)
            asked = (record, facts)[: len(inspect.signature(self.module.judge).parameters)]
            judgements = list(record.unusable()) or list(self.module.judge(*asked))
            figure, table = str(record.figure()), record.table()
        return Judged(
            findings=tuple(item for item in judgements if isinstance(item, Finding)),
            verified=tuple(dict.fromkeys(item.pci_bus_id for item in judgements if isinstance(item, Verified))),
            figure=figure,
            table=table,
        )


def documentation(module: ModuleType) -> str:
    """Return the module's docstring, cleaned of indentation; "" where it has none."""
    if module.__doc__ is None and WITHOUT_DOCSTRINGS and module.__file__ is not None:
        try:
            return ast.get_docstring(ast.parse(Path(module.__file__).read_bytes())) or ""
        except OSError:  # installed without its source
            return ""
    return inspect.cleandoc(module.__doc__ or "")


def sections(text: str) -> dict[str, str]:
    """Split a probe's documentation into its headings and their texts, dedented."""
    found: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in text.splitlines():
        if line in {*HEADINGS, MEANING}:
            current = found.setdefault(line, [])
        elif current is not None:
            current.append(line)
    return {heading: inspect.cleandoc("\n".join(lines)) for heading, lines in found.items()}


@cache
def entries() -> tuple[Entry, ...]:
    """Return every probe, ordered by area as a user meets them and then by name."""
    found = [
        _entry(importlib.import_module(f"{_PACKAGE}.{area}.{probe.name}"), f"{area}.{probe.name}")
        for area in gpudiag.probes.AREAS
        for probe in pkgutil.iter_modules(importlib.import_module(f"{_PACKAGE}.{area}").__path__)
    ]
    return tuple(found)


def get(name: str, also: Sequence[str] = ()) -> Entry:
    """Return the probe called ``name``; raises :class:`UsageError` that names the nearest ones, ``also`` included."""
    for entry in entries():
        if entry.name == name:
            return entry
    near = nearest(name, [*(entry.name for entry in entries()), *also])
    listed = "'gpudiag list' lists the probes" + ("; a cause is named in a report." if also else ".")
    raise UsageError(f"No probe {'or cause ' if also else ''}is called {name!r}. {near or listed}")


def select(patterns: Sequence[str]) -> tuple[Entry, ...]:
    """Return the probes that ``patterns`` (areas, names, globs) choose, all of them where there is no pattern.

    Raises :class:`UsageError` for a pattern that chooses nothing.
    """
    if not patterns:
        return entries()
    chosen = set[str]()
    for pattern in patterns:
        matched = {entry.name for entry in entries() if pattern == entry.area or fnmatchcase(entry.name, pattern)}
        if not matched:
            known = [entry.name for entry in entries()] + list(gpudiag.probes.AREAS)
            raise UsageError(f"No probe or area matches {pattern!r}. {nearest(pattern, known)} See 'gpudiag list'.")
        chosen |= matched
    return tuple(entry for entry in entries() if entry.name in chosen)


def _entry(module: ModuleType, name: str) -> Entry:
    """Check the form of a probe's module and return its entry; raises :class:`CatalogueError`."""

    def refuse(fault: str) -> CatalogueError:
        return CatalogueError(f"{module.__file__}: {fault}")

    members = vars(module)
    measures = "measure" in members
    missing = [wanted for wanted in (_MEASURED if measures else _HOST) if wanted not in members]
    if missing:
        raise refuse(f"a probe needs {', '.join(missing)}")
    if not WITHOUT_DOCSTRINGS:  # to read every source would take 0.2 s
        written = sections(documentation(module))
        headings = HEADINGS if measures else (*HEADINGS, MEANING)
        if absent := [heading for heading in headings if not written.get(heading)]:
            raise refuse(f"the docstring lacks {', '.join(absent)}")
    if (versions := members["PROBE"].needs.versions) and not _is_range(versions):
        raise refuse(f"{versions!r} is not a range of versions")
    if not measures:
        kinds = tuple(value for value in members.values() if isinstance(value, Kind))
        return Entry(name, module, members["PROBE"], kinds, None)
    reading, fault = members["Reading"], members["Fault"]
    if not (isinstance(reading, type) and issubclass(reading, Reading) and "figure" in vars(reading)):
        raise refuse("a probe that measures needs a class Reading(gpudiag.probe.Reading) with a figure")
    if not (isinstance(fault, type) and issubclass(fault, Faults)):
        raise refuse("a probe that measures needs a class Fault(gpudiag.probe.Faults)")
    return Entry(name, module, members["PROBE"], fault.kinds(), reading)


def _is_range(versions: str) -> bool:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        SpecifierSet(versions)
    except InvalidSpecifier:
        return False
    return True
