"""A TensorFlow, or a driver, that does not do what a probe says that it does: the probe must notice.

Altered readings prove what ``judge`` finds; a sabotage proves ``measure`` too. It is a function that runs in the child
process of a probe, before the probe measures, and changes the real TensorFlow there, or what it stands on, in one
thing. It is written from what the probe's docstring claims, and as deep in TensorFlow as Python reaches, so that it
does not depend on how the probe asks. On a healthy machine the finding does not come: the readings in
``tests/recorded`` show that. A module for each part of TensorFlow, and what they share in :mod:`sabotages.tools`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

MACHINE = "2x16GiB"
_TARGETS = {f"gpudiag.run.worker:{name}": f"sabotages:{name}" for name in ("run_probe", "run_peer")}
_TABLE: list[Sabotage] = []


@dataclass(frozen=True)
class Sabotage:
    """What is done to the child of a probe, and the finding that must come."""

    probe: str
    finds: str
    alteration: str
    """The function, as ``module:function``."""
    machine: str = MACHINE

    def __str__(self) -> str:
        return f"{self.probe}: {self.alteration.partition(':')[2]} must be found as {self.finds}"


def found_as(machine: str = MACHINE, **findings: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Put a function into the table: what it does is found by these probes (``area__probe="finding"``)."""

    def put(alteration: Callable[[], None]) -> Callable[[], None]:
        name = f"{alteration.__module__}:{alteration.__name__}"
        _TABLE.extend(Sabotage(probe.replace("__", "."), kind, name, machine) for probe, kind in findings.items())
        return alteration

    return put


def table() -> tuple[Sabotage, ...]:
    """Return every sabotage, area by area."""
    for area in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{area.name}")
    return tuple(_TABLE)


def rounds() -> tuple[tuple[Sabotage, ...], ...]:
    """Deal the table out: in each round a probe has one sabotage at most, so that one run shows them all."""
    dealt: dict[tuple[str, int], list[Sabotage]] = {}
    seen: dict[tuple[str, str], int] = {}
    for sabotage in table():
        number = seen[sabotage.machine, sabotage.probe] = seen.get((sabotage.machine, sabotage.probe), -1) + 1
        dealt.setdefault((sabotage.machine, number), []).append(sabotage)
    return tuple(map(tuple, dealt.values()))


def install(alterations: Mapping[str, str]) -> None:
    """Let the runs of this process sabotage these probes: name to ``module:function``."""
    from gpudiag.isolate import Job, supervisor

    start = supervisor.Supervisor.start

    def sabotaged(self: supervisor.Supervisor, job: Job) -> None:
        if job.target in _TARGETS and (alteration := alterations.get(job.argument["probe"])):
            argument = {**job.argument, "alteration": alteration}
            job = replace(job, target=_TARGETS[job.target], argument=argument)
        start(self, job)

    supervisor.Supervisor.start = sabotaged  # type: ignore[method-assign]


def run_probe(argument: dict[str, Any]) -> bytes:
    """Sabotage this child, then do what it was started for."""
    return _sabotaged("run_probe", argument)


def run_peer(argument: dict[str, Any]) -> bytes:
    """Sabotage this child, then do what it was started for."""
    return _sabotaged("run_peer", argument)


def _sabotaged(name: str, argument: dict[str, Any]) -> bytes:
    from gpudiag.isolate.worker import resolve

    resolve(argument["alteration"])()
    done: bytes = resolve(f"gpudiag.run.worker:{name}")(argument)
    return done
