"""A real Dask cluster of processes on loopback: every address of 127.0.0.0/8 is a host."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

DEADLINE_S = 120


class Dask:
    """A scheduler, and workers that a test starts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "scheduler.json"
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("DASK_", "CUDA_"))
        }
        self.workers: dict[str, subprocess.Popen[bytes]] = {}

    @contextlib.contextmanager
    def running(self) -> Iterator[Dask]:
        """Start the scheduler, and end it and all workers."""
        scheduler = self._start("scheduler", "--host", "127.0.0.1", "--port", "0", "--no-show")
        try:
            self._wait(scheduler, self.file.exists)
            yield self
        finally:
            for process in (*self.workers.values(), scheduler):
                process.kill()
            for process in (*self.workers.values(), scheduler):
                process.wait(DEADLINE_S)

    def start_workers(
        self, workers: Mapping[str, str], variables: Mapping[str, Mapping[str, str]] | None = None
    ) -> None:
        """Start workers by name, each on its address, with variables of their own."""
        started = {
            name: self._start(
                *("worker", "--host", address, "--name", name, "--nthreads", "1", "--no-nanny", "--memory-limit", "0"),
                *("--local-directory", str(self.folder)),
                variables=(variables or {}).get(name, {}),
            )
            for name, address in workers.items()
        }
        self.workers |= started
        for name, process in started.items():
            self._wait(process, lambda name=name: "Registered to" in self.log(name))

    def log(self, name: str) -> str:
        file = self.folder / f"{name}.log"
        return file.read_text(errors="replace") if file.exists() else ""

    def _start(self, *words: str, variables: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        command: Sequence[str] = (
            sys.executable,
            "-m",
            "dask",
            *words,
            "--no-dashboard",
            "--scheduler-file",
            str(self.file),
        )
        name = words[words.index("--name") + 1] if "--name" in words else words[0]
        with (self.folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                command,
                cwd=self.folder,
                env={**self.environment, **(variables or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _wait(self, process: subprocess.Popen[bytes], happened: object) -> None:
        assert callable(happened)
        until = time.monotonic() + DEADLINE_S
        while not happened():
            logs = "\n".join(file.read_text(errors="replace")[-2000:] for file in self.folder.glob("*.log"))
            assert process.poll() is None, f"a part of the cluster ended: {logs}"
            assert time.monotonic() < until, f"the cluster did not start: {logs}"
            time.sleep(0.05)
