"""Nodes that ``salloc`` holds for the collector, until it closes them or ends, in whatever way.

``salloc`` runs a command that waits for the end of its standard input, which is a pipe from the collector: if that is
killed by signal 9, the pipe ends, and so do the command, ``salloc`` and the job.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
from collections.abc import Sequence

from gpudiag.fleet.names import hostlist
from gpudiag.fleet.process import GRACE_S, MOST_ERRORS
from gpudiag.fleet.slurm_nodes import ask, environment

JOB_NAME = "gpudiag-fleet"
_HOLD = 'echo "$SLURM_JOB_ID" && exec cat > /dev/null'
_PENDING = re.compile(r"(?:Pending job allocation|job) (\d+)")


class Allocation:
    """A job of Slurm that holds nodes."""

    def __init__(self, nodes: Sequence[str], arguments: Sequence[str]) -> None:
        self.nodes = tuple(nodes)
        self.job = ""
        """The id of the job; empty as long as Slurm has not given the nodes."""
        self.errors = ""
        """What ``salloc`` wrote, from the end."""
        self._arguments = tuple(arguments)
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None

    @property
    def is_open(self) -> bool:
        """Whether the nodes are held."""
        return bool(self.job) and self._process is not None and self._process.returncode is None

    async def open(self, wait_s: float) -> None:
        """Ask for the nodes and wait so long for them; :attr:`job` says whether they were given."""
        size = f"-N{len(self.nodes)}"
        words = ("--no-kill", "--kill-command=TERM", size, "--ntasks-per-node=1", f"--job-name={JOB_NAME}")
        try:
            self._process = await asyncio.create_subprocess_exec(
                *("salloc", *words, f"--nodelist={hostlist(self.nodes)}", *self._arguments, "sh", "-c", _HOLD),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=environment(),
                start_new_session=True,
            )
        except OSError as error:
            self.errors = f"salloc: {error.strerror or error}"
            return
        assert self._process.stdout is not None
        self._reading = asyncio.ensure_future(self._read_errors())
        line = b""
        with contextlib.suppress(asyncio.TimeoutError):
            line = await asyncio.wait_for(self._process.stdout.readline(), wait_s)
        self.job = line.decode(errors="replace").strip()
        if not self.job:
            await self.close()

    async def wait_for_end(self, limit_s: float) -> None:
        """Wait, at most so long, until the nodes are no longer held."""
        if self._process is not None:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._process.wait(), limit_s)

    async def close(self) -> None:
        """Give the nodes back, or no longer wait for them; nothing of the job is left."""
        process = self._process
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        if not self.job:
            _signal(process, signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), GRACE_S)
        except asyncio.TimeoutError:
            job = self.job or next(iter(_PENDING.findall(self.errors)), "")
            if job:
                await ask("scancel", job)
            _signal(process, signal.SIGKILL)
            await process.wait()
        if self._reading is not None:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._reading, GRACE_S)

    async def _read_errors(self) -> None:
        assert self._process is not None
        assert self._process.stderr is not None
        while part := await self._process.stderr.read(1 << 12):
            self.errors = (self.errors + part.decode(errors="replace"))[-MOST_ERRORS:]


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
