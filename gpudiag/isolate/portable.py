"""The supervisor for platforms without Linux's process controls: a new interpreter for every job.

Output and record go to temporary files, because pipes cannot be waited for together on Windows. What Linux adds is
missing here: orphans are found only while their parents live, and nothing ends the children if gpudiag is killed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO

import psutil

from gpudiag.isolate import worker
from gpudiag.isolate.job import LENGTH_BYTES, Bounds, Captured, Ended, Job, ServerSpec, child_outcome
from gpudiag.model.report import Cause

_POLL_S = 0.02


@dataclass
class _Child:
    job: Job
    process: subprocess.Popen[bytes]
    folder: tempfile.TemporaryDirectory[str]
    started_at: float
    cause: Cause | None = None
    detail: str = ""
    killed_at: float | None = None

    def path(self, what: str) -> Path:
        return Path(self.folder.name) / what


class PortableSupervisor:
    """Runs every job in a new interpreter; see :class:`gpudiag.isolate.Supervision`."""

    wakeup_fd = -1

    def __init__(self, servers: dict[str, ServerSpec], bounds: Bounds) -> None:
        self._servers = servers
        self._bounds = bounds
        self._children: dict[str, _Child] = {}

    def __enter__(self) -> PortableSupervisor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for child in list(self._children.values()):
            self._kill(child)
            self._ended(child)

    def prepare(self, server: str) -> None:
        """Do nothing: there are no servers."""

    def start(self, job: Job) -> None:
        """Begin ``job`` in a new interpreter."""
        folder = tempfile.TemporaryDirectory(prefix="gpudiag-", ignore_cleanup_errors=True)
        environment = {**os.environ, **dict.fromkeys(("TMPDIR", "TEMP", "TMP"), folder.name)}
        for name, value in {**self._servers[job.server].env, "PYTHONWARNINGS": None, **job.env}.items():
            if value is None:
                environment.pop(name, None)
            else:
                environment[name] = value
        order, record, stdout, stderr = (Path(folder.name) / what for what in ("order", "record", "stdout", "stderr"))
        order.write_bytes(worker.order(job.target, job.argument))
        record.touch()
        with stdout.open("wb") as out, stderr.open("wb") as err:
            process = self._popen(worker.command(worker.__name__, str(order), str(record)), environment, out, err)
        self._children[job.key] = _Child(job, process, folder, time.monotonic())

    def kill(self, key: str, cause: Cause, detail: str) -> None:
        """End the job ``key`` now, if it has not ended; ``wait`` reports it with this cause."""
        if key in self._children:
            self._condemn(self._children[key], cause, detail)

    def wait(self, timeout_s: float) -> list[Ended]:
        """Poll until a job has ended or ``timeout_s`` seconds have passed."""
        until = time.monotonic() + timeout_s
        while True:
            for child in self._children.values():
                self._keep_bounds(child)
            ended = [self._ended(child) for child in list(self._children.values()) if self._is_over(child)]
            if ended or time.monotonic() >= until:
                return ended
            time.sleep(_POLL_S)

    @staticmethod
    def _popen(
        command: list[str], environment: dict[str, str], out: IO[bytes], err: IO[bytes]
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=environment,
            start_new_session=os.name == "posix",
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0) if sys.platform == "win32" else 0,
        )

    def _keep_bounds(self, child: _Child) -> None:
        allowed = child.job.deadline_s + (0.0 if child.job.server == "plain" else self._bounds.preload_s)
        if time.monotonic() >= child.started_at + allowed:
            self._condemn(child, Cause.TIMEOUT, f"no result within {child.job.deadline_s:g} s")
        written = sum(child.path(what).stat().st_size for what in ("stdout", "stderr"))
        if written > self._bounds.output_bytes:
            flood = f"wrote more than {self._bounds.output_bytes >> 20} MiB to stdout and stderr"
            self._condemn(child, Cause.OUTPUT_FLOOD, flood)
        if child.path("record").stat().st_size > self._bounds.record_bytes:
            self._condemn(child, Cause.BAD_RESULT, f"its record is larger than {self._bounds.record_bytes >> 20} MiB")

    def _condemn(self, child: _Child, cause: Cause, detail: str) -> None:
        if child.cause is None:
            child.cause, child.detail, child.killed_at = cause, detail, time.monotonic()
            self._kill(child)

    def _kill(self, child: _Child) -> None:
        """Kill the child and every descendant that can still be found."""
        with contextlib.suppress(psutil.Error):
            parent = psutil.Process(child.process.pid)
            for process in [*parent.children(recursive=True), parent]:
                with contextlib.suppress(psutil.Error):
                    process.kill()
        if os.name == "posix":
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.process.pid, signal.SIGKILL)

    def _is_over(self, child: _Child) -> bool:
        if child.process.poll() is not None:
            return True
        if child.killed_at is not None and time.monotonic() >= child.killed_at + self._bounds.kill_grace_s:
            child.cause = Cause.UNKILLABLE
            child.detail = f"{child.detail}; process {child.process.pid} did not die"
            return True
        return False

    def _ended(self, child: _Child) -> Ended:
        if child.process.poll() is not None and os.name == "posix":
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.process.pid, signal.SIGKILL)  # what it left in its process group
        duration = time.monotonic() - child.started_at
        texts = {}
        for what in ("stdout", "stderr"):
            captured = Captured(self._bounds.kept_bytes)
            with child.path(what).open("rb") as stream:
                while chunk := stream.read(1 << 20):
                    captured.feed(chunk)
            texts[what] = captured.text()
        with child.path("record").open("rb") as stream:
            record = stream.read(self._bounds.record_bytes + LENGTH_BYTES)
        value, cause, detail = child_outcome(record, child.process.poll(), child.cause, child.detail)
        child.folder.cleanup()
        del self._children[child.job.key]
        return Ended(child.job.key, value, cause, detail, texts["stdout"], texts["stderr"], duration)
