"""What makes each probe find something: a probe that cannot fail is not a probe. One table an area.

A probe that depends on the machine has a *machine*: a specification, faults, variables or a provoking command-line
option, under which ``gpudiag check`` must find the kind. What no machine of ours changes is shown by a *reading*: the
one recorded on a healthy machine (``tests/recorded``, written by ``scripts/record.py``), altered in a field that is
judged, or with the *facts* of that machine altered. Some of them are near misses: nothing must be found.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from conftest import Gpudiag
from gpudiag.probe import Beside


@dataclass(frozen=True)
class OnMachine:
    """A machine under which ``probe`` finds ``kind``."""

    probe: str
    kind: str
    machine: str = "2x16GiB"
    """What ``--simulate`` takes: a specification, or TOML where it holds a line break; "" for the real machine."""
    faults: tuple[str, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    prepare: Callable[[Gpudiag], None] | None = None
    """Changes the environment: dummy distributions, files."""

    @property
    def conditions(self) -> tuple[object, ...]:
        """The same for provocations that one run of ``gpudiag check`` can show."""
        return self.machine, self.faults, tuple(self.variables.items()), self.options, self.prepare

    def __str__(self) -> str:
        variables = [f"{name}={value}" for name, value in self.variables.items()]
        return " ".join(["-".join(self.machine.split()), *self.faults, *variables, *self.options])


NOTHING = ""
"""The kind of a near miss."""


@dataclass(frozen=True)
class Altered:
    """A recorded reading of ``probe`` in which ``kind``, and no other, is found once it, or the facts, are changed."""

    probe: str
    kind: str
    """One kind, several with commas between them, or :data:`NOTHING`."""
    change: dict[str, Any] = field(default_factory=dict)
    """Path in the reading, such as ``runs.0.device``, and what stands there instead."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Path in the facts, such as ``nvml.devices.0.mig_mode``, and what stands there instead."""
    beside: Callable[[Any], Beside] | None = None
    """Makes what else was measured in the run from the altered reading, for a probe that compares."""

    @property
    def kinds(self) -> set[str]:
        return set(self.kind.split(", ")) - {NOTHING}

    def __str__(self) -> str:
        return " ".join([self.probe, self.kind or "nothing", *self.change, *self.facts])


@dataclass(frozen=True)
class AlteredFacts:
    """Recorded host facts with which ``probe`` finds ``kind`` once ``change`` is made."""

    probe: str
    kind: str
    change: dict[str, Any]
    """Path in the facts, such as ``tensorflow.build.cuda``, and what stands there instead (plain JSON)."""

    def __str__(self) -> str:
        return " ".join([self.probe, self.kind, *self.change])


def machines() -> tuple[tuple[OnMachine, ...], ...]:
    """Return the provocations that need a machine, those together that need the same one."""
    found: dict[tuple[object, ...], list[OnMachine]] = {}
    for provocation in table():
        if isinstance(provocation, OnMachine):
            found.setdefault(provocation.conditions, []).append(provocation)
    return tuple(map(tuple, found.values()))


def table() -> tuple[OnMachine | Altered | AlteredFacts, ...]:
    """Return every provocation, area by area."""
    return tuple(
        provocation
        for area in pkgutil.iter_modules(__path__)
        for provocation in importlib.import_module(f"{__name__}.{area.name}").PROVOCATIONS
    )
