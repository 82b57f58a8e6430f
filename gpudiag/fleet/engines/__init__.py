"""Engines: what carries a command to the nodes. Each is a file here, named as ``--engine`` takes it.

A file has the class ``Engine``, made from :class:`EngineOptions`. Slurm, ssh, Kubernetes and local are the user's own
programs, started by :func:`gpudiag.fleet.launcher.launch`; they differ by the arguments and by :attr:`Engine.reasons`.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from gpudiag.fleet.launcher import Done
from gpudiag.model.fleet import EngineOptions, NoReport
from gpudiag.text import one_line


@dataclass(frozen=True)
class Roster:
    """The nodes of a check, as the engine knows them before anything starts."""

    nodes: tuple[str, ...]
    """Every node that was asked for, also those that cannot be used."""
    not_usable: dict[str, str]
    """Nodes that the engine gives to nobody now, or does not know; each with its reason."""
    racks: dict[str, str]
    """The rack of each node, where the engine knows it."""


class Rule:
    """A pattern in the status and the last lines of an engine's program, and the reason that it means."""

    def __init__(self, reason: NoReport, text: str = "", *, status: int | None = None) -> None:
        self.reason = reason
        self.status = status
        self.text = re.compile(text, re.IGNORECASE)

    def line_in(self, done: Done) -> str | None:
        """Return the last line that contains the text of this rule; "" if the rule looks at the status only.

        None if the rule does not fit the result.
        """
        if self.status not in (None, done.status):
            return None
        text = f"{done.errors}\n{done.output[-4096:].decode(errors='replace')}"
        matches = list(self.text.finditer(text))
        if not matches or not self.text.pattern:
            return "" if matches else None
        return one_line(text[text.rfind("\n", 0, matches[-1].start()) + 1 :].partition("\n")[0])[:500]


class Engine(Protocol):
    """What carries a command to nodes."""

    reasons: Sequence[Rule]
    """Tried in order on a result without a report; before them, whether it was ended at the deadline."""
    most_at_once: int
    """How many nodes are asked at the same time, unless the user says."""

    async def roster(self, names: tuple[str, ...]) -> Roster:
        """Return the nodes that these names mean; without names, all that the engine has.

        Raises :class:`gpudiag.errors.UsageError` if the engine is not installed, does not answer, or has no node.
        """

    def opened(self, nodes: Sequence[str], deadline_s: float) -> AbstractAsyncContextManager[None]:
        """Return what must be open while commands run, such as an allocation of Slurm."""

    async def run(self, node: str, argv: Sequence[str], deadline_s: float, given: bytes | None = None) -> Done:
        """Run a command on a node; ``given`` is its standard input. Raises nothing of the engine."""


@runtime_checkable
class BatchEngine(Protocol):
    """An engine that can also ask many nodes by one command, which is cheaper and less sure."""

    most_batches: int
    """How many batches are asked at the same time, unless the user says how many nodes."""

    def batches(self, nodes: Sequence[str]) -> list[tuple[str, ...]]:
        """Return all of these nodes in batches; a node alone is asked by :meth:`Engine.run`. For an open engine."""

    async def run_batch(self, nodes: Sequence[str], argv: Sequence[str], deadline_s: float) -> dict[str, Done]:
        """Run a command on each node of a batch; nodes of which nothing came back may be missing in the result."""


@runtime_checkable
class AddressedEngine(Protocol):
    """An engine that knows under which address the nodes reach each other; else they do by their names."""

    async def addresses(self, nodes: Sequence[str]) -> dict[str, str]:
        """Return the address of each node, as far as it is known."""


__all__ = ["NAMES", "AddressedEngine", "BatchEngine", "Engine", "EngineOptions", "Roster", "Rule", "made"]

NAMES = tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def made(name: str, options: EngineOptions) -> Engine:
    """Return the engine that is called ``name``."""
    engine: Engine = importlib.import_module(f"{__name__}.{name}").Engine(options)
    return engine
