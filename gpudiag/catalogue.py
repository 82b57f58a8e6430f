"""Every probe that ships: found by walking ``gpudiag.probes``, checked for form, selected by name, area or glob."""

from __future__ import annotations

import ast
import contextlib
import importlib
import inspect
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import cast

import msgspec

import gpudiag.probes
from gpudiag.errors import CatalogueError, UsageError, nearest, sentences
from gpudiag.model.facts import Facts
from gpudiag.model.reading import SavedReading
from gpudiag.model.report import Finding, Gap, Judged, Row
from gpudiag.probe import (
    HEADINGS,
    NOTHING_BESIDE,
    Beside,
    EndedReading,
    Faults,
    FindingKind,
    GpuReading,
    Probe,
    ProbeModule,
    Reading,
    Verified,
)
from gpudiag.probes import listing

_PACKAGE = gpudiag.probes.__name__

WITHOUT_DOCSTRINGS = sys.flags.optimize >= 2
"""True if ``python -OO`` or ``PYTHONOPTIMIZE=2`` strips the docstrings: they are then read from the source."""


_MEASURED = ("PROBE", "Fault", "Reading", "judge")
_HOST = ("PROBE", "figure")
_WITHOUT_FIGURE = (Reading.figure, GpuReading.figure)


@dataclass(frozen=True)
class Entry:
    """One probe of the catalogue."""

    name: str
    """``<area>.<name>``."""
    module: ProbeModule
    probe: Probe
    kinds: tuple[FindingKind, ...]
    reading: type[Reading] | None
    """The type of the probe's reading; None for a row of the host, which shows what causes find in the facts."""

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

    def decode(self, saved: SavedReading) -> Reading:
        """Return the record of a reading that a report has saved.

        Raises ``msgspec.ValidationError`` if it is not a reading of this probe.
        """
        assert self.reading is not None
        if "operation_raised" in saved:
            return msgspec.convert(saved, EndedReading)
        if not issubclass(self.reading, GpuReading):
            return msgspec.convert(saved, self.reading)
        listed = msgspec.convert({name: saved[name] for name in ("given", "seen") if name in saved}, GpuReading)
        return msgspec.convert(saved, self.reading) if listed.complete else listed

    @property
    def compares(self) -> bool:
        """True for a probe that is judged when all its rows have ended: it compares them."""
        return self.reading is not None and len(inspect.signature(self.module.judge).parameters) > 2

    def judge(self, reading: Reading, facts: Facts, beside: Beside = NOTHING_BESIDE) -> Judged:
        """Judge a reading under ``facts``, and ``beside`` what else was measured in the run."""
        arguments = (reading, facts, beside)[: len(inspect.signature(self.module.judge).parameters)]
        unusable = list(reading.unusable())
        judgements = unusable or list(self.module.judge(*arguments))
        return Judged(
            findings=tuple(item for item in judgements if isinstance(item, Finding)),
            verified=tuple(dict.fromkeys(item.pci_bus_id for item in judgements if isinstance(item, Verified))),
            figure=str(reading.figure()),
            table=reading.table(),
            limits=() if unusable else reading.limits(),
            gaps=() if unusable else (*reading.gaps(), *(item for item in judgements if isinstance(item, Gap))),
        )


def documentation(module: ProbeModule | ModuleType) -> str:
    """Return the module's docstring, cleaned of indentation; "" if it has none."""
    if module.__doc__ is None and WITHOUT_DOCSTRINGS and module.__file__ is not None:
        try:
            return ast.get_docstring(ast.parse(Path(module.__file__).read_bytes())) or ""
        except OSError:  # installed without its source
            return ""
    return inspect.cleandoc(module.__doc__ or "")


def sections(text: str) -> dict[str, str]:
    """Split a probe's documentation into its headings and their texts, dedented."""
    lines_by_heading: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in text.splitlines():
        if line in HEADINGS:
            current = lines_by_heading.setdefault(line, [])
        elif current is not None:
            current.append(line)
    return {heading: inspect.cleandoc("\n".join(lines)) for heading, lines in lines_by_heading.items()}


@cache
def _loaded(name: str) -> Entry:
    area, _, probe = name.partition(".")
    return _entry(importlib.import_module(f"{_PACKAGE}.{area}.{probe}"), name)


def entries() -> tuple[Entry, ...]:
    """Return every probe, ordered by area as a user meets them and then by name."""
    return tuple(map(_loaded, listing.names()))


def get(name: str) -> Entry:
    """Return the probe called ``name``; raises :class:`UsageError` that names the nearest ones."""
    if name in listing.names():
        return _loaded(name)
    raise UsageError(sentences(f"no probe is called {name!r}.", nearest(name, listing.names()), "See 'gpudiag list'."))


def select(patterns: Sequence[str]) -> tuple[Entry, ...]:
    """Return the probes that ``patterns`` choose; see :func:`gpudiag.probes.listing.chosen`."""
    return tuple(map(_loaded, listing.chosen(patterns)))


def decode_readings(rows: tuple[Row, ...], *, imported_only: bool = False) -> tuple[Row, ...]:
    """Return the rows of a saved report, their readings decoded by the probes that made them.

    A reading that no probe of this gpudiag can decode stays as it is. ``imported_only`` skips probes whose module is
    not imported yet: nothing can use their decoded readings.
    """
    return tuple(_with_decoded_reading(row, imported_only=imported_only) for row in rows)


def _with_decoded_reading(row: Row, *, imported_only: bool) -> Row:
    known = f"{_PACKAGE}.{row.probe}" in sys.modules if imported_only else row.probe in listing.names()
    if known and isinstance(row.reading, SavedReading):
        entry = _loaded(row.probe)
        with contextlib.suppress(msgspec.ValidationError):
            if entry.reading is not None:
                return msgspec.structs.replace(row, reading=entry.decode(row.reading))
    return row


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
        if absent := [heading for heading in HEADINGS if not written.get(heading)]:
            raise refuse(f"the docstring lacks {', '.join(absent)}")
    if (versions := members["PROBE"].needs.versions) and not _is_range(versions):
        raise refuse(f"{versions!r} is not a range of versions")
    if not measures:
        return Entry(name, cast(ProbeModule, module), members["PROBE"], (), None)
    reading, fault = members["Reading"], members["Fault"]
    if not (isinstance(reading, type) and issubclass(reading, Reading) and reading.figure not in _WITHOUT_FIGURE):
        raise refuse("a probe that measures needs a class Reading(gpudiag.probe.Reading) with a figure")
    if not (isinstance(fault, type) and issubclass(fault, Faults)):
        raise refuse("a probe that measures needs a class Fault(gpudiag.probe.Faults)")
    return Entry(name, cast(ProbeModule, module), members["PROBE"], fault.kinds(), reading)


def _is_range(versions: str) -> bool:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        SpecifierSet(versions)
    except InvalidSpecifier:
        return False
    return True
