"""What makes each probe find something: a probe that cannot fail is not a probe. One table an area.

A probe that depends on the machine has a *machine*: a specification, faults, variables or a provoking command-line
option, under which ``gpudiag check`` must find the kind. A probe that tests TensorFlow's own logic, which no machine of
ours changes, has *readings*: the one recorded on a healthy machine (``reports/simulated-2x16GiB.json``), altered in a
field that is judged. A probe of what no simulated machine has, such as what is installed or a container, has *facts*:
those of the same report, altered.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from conftest import Gpudiag


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


@dataclass(frozen=True)
class Altered:
    """A recorded reading of ``probe`` in which ``kind`` is found once ``change`` is made."""

    probe: str
    kind: str
    change: dict[str, Any]
    """Path in the reading, such as ``runs.0.device``, and what stands there instead."""

    def __str__(self) -> str:
        return " ".join([self.probe, self.kind, *self.change])


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
    for one in table():
        if isinstance(one, OnMachine):
            found.setdefault(one.conditions, []).append(one)
    return tuple(map(tuple, found.values()))


def table() -> tuple[OnMachine | Altered | AlteredFacts, ...]:
    """Return every provocation, area by area."""
    return tuple(
        provocation
        for area in pkgutil.iter_modules(__path__)
        for provocation in importlib.import_module(f"{__name__}.{area.name}").PROVOCATIONS
    )
