"""The engine ``local``: every node is this machine. For a machine without a cluster, and for tests."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, nullcontext

from gpudiag.errors import UsageError
from gpudiag.fleet.engines import EngineOptions, Roster, Rule
from gpudiag.fleet.launcher import Done, launch


class Engine:
    """Starts the command here, with the node's name in ``GPUDIAG_NODE``."""

    reasons: Sequence[Rule] = ()
    most_at_once = 1

    def __init__(self, options: EngineOptions) -> None:
        del options

    async def roster(self, names: tuple[str, ...]) -> Roster:
        """Return the names as they are."""
        if not names:
            raise UsageError("which nodes? The engine 'local' takes any names, such as: gpudiag fleet check n[1-4]")
        return Roster(names, {}, {})

    async def addresses(self, nodes: Sequence[str]) -> dict[str, str]:
        """Return loopback for all: their ports differ then."""
        return dict.fromkeys(nodes, "127.0.0.1")

    def opened(self, nodes: Sequence[str], deadline_s: float) -> AbstractAsyncContextManager[None]:
        """Return nothing that must be open."""
        del nodes, deadline_s
        return nullcontext()

    async def run(self, node: str, argv: Sequence[str], deadline_s: float, given: bytes | None = None) -> Done:
        """Run a command here."""
        return await launch(argv, deadline_s, environ={**os.environ, "GPUDIAG_NODE": node}, given=given)
