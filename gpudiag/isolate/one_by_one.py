"""Jobs on systems other than Linux: each in a new interpreter, one after the other, with a time limit.

TensorFlow has no CUDA there, so no probe runs: these jobs gather host facts, judge and diagnose. These jobs are
gpudiag's own code, which needs no fork server and leaves no processes behind.
"""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from types import TracebackType

from gpudiag.folders import Folder
from gpudiag.isolate import worker
from gpudiag.isolate.job import Bounds, Captured, Job, JobResult, ServerSpec, child_outcome
from gpudiag.model.report import NoReading


class OneByOne:
    """Runs each job to its end within ``wait``; see :class:`gpudiag.isolate.Supervision`."""

    wakeup_fd = -1

    def __init__(self, servers: dict[str, ServerSpec], bounds: Bounds) -> None:
        self._servers = servers
        self._bounds = bounds
        self._waiting: dict[str, Job] = {}
        self._killed: list[JobResult] = []

    def __enter__(self) -> OneByOne:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Do nothing: no job runs outside ``wait``."""

    def prepare(self, server: str) -> None:
        """Do nothing: there are no servers."""

    def start(self, job: Job) -> None:
        """Keep ``job`` until the next ``wait``."""
        self._waiting[job.key] = job

    def kill(self, key: str, cause: NoReading, detail: str) -> None:
        """Discard the job ``key`` if it has not run yet; ``wait`` reports it with this cause."""
        if self._waiting.pop(key, None):
            self._killed.append(JobResult(key, None, cause, detail, "", "", 0.0))

    def pid(self, key: str) -> int | None:
        """Return None: a job runs only within ``wait``."""

    def allow(self, key: str, seconds: float) -> None:
        """Do nothing: a job cannot be influenced while it runs."""

    def starved_s(self, key: str) -> float:
        """Return 0: a job is not observed while it runs."""
        return 0.0

    def busy(self) -> str:
        """Return "": a job is not observed while it runs."""
        return ""

    def said(self, key: str) -> str:
        """Return "": a job is not observed while it runs."""
        return ""

    def wait(self, timeout_s: float) -> list[JobResult]:
        """Run the next job, however long it takes; without a job, wait for ``timeout_s`` seconds."""
        if self._killed:
            ended, self._killed = self._killed, []
            return ended
        if self._waiting:
            return [self._run(self._waiting.pop(next(iter(self._waiting))))]
        time.sleep(timeout_s)
        return []

    def _run(self, job: Job) -> JobResult:
        # Output goes to files: what a job started may keep a pipe open after the job was killed.
        with Folder("job") as folder:
            order, record, stdout, stderr = (folder / name for name in ("order", "record", "stdout", "stderr"))
            order.write_bytes(worker.order(job.target, job.argument))
            record.touch()
            changes = {**self._servers[job.server].env, "PYTHONWARNINGS": None, **job.env}
            environment = {name: value for name, value in {**os.environ, **changes}.items() if value is not None}
            code, cause, detail = None, None, ""
            began = time.monotonic()
            with stdout.open("wb") as out, stderr.open("wb") as err:
                try:
                    code = subprocess.run(
                        worker.command(worker.__name__, str(order), str(record)),
                        stdin=subprocess.DEVNULL,
                        stdout=out,
                        stderr=err,
                        env=environment,
                        timeout=job.deadline_s,
                        check=False,
                    ).returncode
                except subprocess.TimeoutExpired:
                    cause, detail = NoReading.TIMEOUT, f"no result within {job.deadline_s:g} s"
                except OSError as error:
                    cause, detail = NoReading.NOT_STARTED, str(error)
            duration_s = time.monotonic() - began
            value, cause, detail = child_outcome(record.read_bytes(), code, cause, detail)
            return JobResult(job.key, value, cause, detail, self._text(stdout), self._text(stderr), duration_s)

    def _text(self, file: Path) -> str:
        captured = Captured(self._bounds.kept_bytes)
        with file.open("rb") as stream:
            while chunk := stream.read(1 << 20):
                captured.feed(chunk)
        return captured.text()
