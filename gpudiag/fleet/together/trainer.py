"""A process for TensorFlow on a node: forked before anything else is there, ended at a limit, its output bounded."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
from typing import Any

import psutil

from gpudiag.fleet.together import training
from gpudiag.isolate import linux

MOST_OUTPUT = 64 << 10
"""The most bytes of its log that are kept, from the end."""
MOST_NOTE = 1 << 20
MOST_LINES = 40
"""The most lines of NCCL that are kept, from the beginning."""
_OF_NCCL = re.compile(r"NCCL (?:WARN|INFO) .*")
_KEPT = re.compile(r"NCCL WARN|NET/|Bootstrap|NCCL_SOCKET|[Uu]sing (?:network|interface)")


class EndedError(Exception):
    """The process ended before its next note."""


class Trainer:
    """A forked process that waits for orders; forked, because a shipped gpudiag has no file that could be started."""

    def __init__(self) -> None:
        orders, self._orders = os.pipe()
        self._notes_from, notes = os.pipe()
        self._output_from, output = os.pipe()
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.setsid()
                linux.die_with_parent(parent)
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                os.dup2(output, 1)
                os.dup2(output, 2)
                for inherited in (self._orders, self._notes_from, self._output_from, output):
                    os.close(inherited)
                training.run(orders, notes)
            finally:
                os._exit(70)
        for given in (orders, notes, output):
            os.close(given)
        self._reader: asyncio.StreamReader | None = None
        self._output = bytearray()
        self.nccl: dict[str, None] = {}
        """What NCCL says of interfaces, and what it warns of."""
        self._draining: asyncio.Task[None] | None = None

    async def _open(self) -> asyncio.StreamReader:
        if self._reader is None:
            self._reader = await _stream(self._notes_from)
            self._draining = asyncio.ensure_future(self._drain(await _stream(self._output_from)))
        return self._reader

    async def _drain(self, stream: asyncio.StreamReader) -> None:
        while part := await stream.read(1 << 16):
            self._output += part
            for line in _OF_NCCL.findall(self._output[-(1 << 17) :].decode(errors="replace")):
                if len(self.nccl) < MOST_LINES and _KEPT.search(line):
                    self.nccl[line[:300]] = None
            del self._output[: len(self._output) - MOST_OUTPUT]

    @property
    def output(self) -> str:
        """The end of its log."""
        return self._output.decode(errors="replace")

    def order(self, **order: object) -> None:
        """Give the next order."""
        with contextlib.suppress(BrokenPipeError):  # it ended; the next note says so
            os.write(self._orders, (json.dumps(order) + "\n").encode())

    async def note(self, limit_s: float) -> dict[str, Any]:
        """Return the next note; raises ``TimeoutError`` of asyncio, or :class:`EndedError`."""
        reader = await self._open()
        line = await asyncio.wait_for(reader.readline(), limit_s)
        if not line.endswith(b"\n"):
            raise EndedError(await self._how_it_ended())
        note: dict[str, Any] = json.loads(line)
        return note

    async def _how_it_ended(self) -> str:
        assert self._draining is not None
        await asyncio.wait([self._draining], timeout=1)
        for _ in range(50 if self.pid else 0):
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.pid = 0
                code = os.waitstatus_to_exitcode(status)
                return f"killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
            await asyncio.sleep(0.1)
        return "closed its pipe" if self.pid else "was ended"

    @property
    def is_stopped(self) -> bool:
        """True if a signal such as SIGSTOP has stopped it."""
        try:
            return bool(psutil.Process(self.pid).status() == psutil.STATUS_STOPPED)
        except psutil.Error:
            return False

    def end(self) -> None:
        """Kill it and what it started."""
        if self.pid:
            linux.kill_group(self.pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.pid, 0)
            self.pid = 0


async def _stream(descriptor: int) -> asyncio.StreamReader:
    reader = asyncio.StreamReader(MOST_NOTE)
    pipe = os.fdopen(descriptor, "rb", 0)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    return reader
