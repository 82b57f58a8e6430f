"""Asks NVML for the state of the GPUs once a second while they are under load: in a process of its own, because NVML
can hang.

It appends a line of JSON for each second, and ends with its parent.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from gpudiag.isolate import scratch_folder, worker
from gpudiag.model.health import GpuHealth, HealthCounters, HealthSample

EVERY_S = 1.0
MOST = 900
"""After so many samples of a GPU the time between two doubles: the first quarter of an hour has one a second."""
_LARGEST = 64 << 20


class Watch:
    """What NVML has said of the GPUs so far."""

    def __init__(self, file: Path | None) -> None:
        self._file = file

    def gpus(self) -> tuple[GpuHealth, ...]:
        """Return what NVML said of each GPU; empty if it said nothing."""
        samples: dict[str, list[HealthSample]] = {}
        counters: dict[str, list[HealthCounters]] = {}
        for uuid, sample, counted in self._noted():
            samples.setdefault(uuid, []).append(sample)
            counters.setdefault(uuid, []).append(counted)
        return tuple(
            GpuHealth(uuid, tuple(several), counters[uuid][0], counters[uuid][-1]) for uuid, several in samples.items()
        )

    def _noted(self) -> Iterator[tuple[str, HealthSample, HealthCounters]]:
        try:
            lines = self._file.read_bytes()[:_LARGEST].splitlines() if self._file else ()
        except OSError:
            return
        for line in lines:
            with contextlib.suppress(msgspec.MsgspecError):  # cut short
                yield from msgspec.json.decode(line, type=list[tuple[str, HealthSample, HealthCounters]])


@contextmanager
def watching(environment: Mapping[str, str | None], began: float) -> Iterator[Watch]:
    """Watch the GPUs during the block; ``began`` is when the run began, by ``time.monotonic``. Nothing is noted if no
    process or folder can be had."""
    own = {**os.environ, **environment}
    with contextlib.ExitStack() as stack:
        try:
            folder = stack.enter_context(scratch_folder())
            process = subprocess.Popen(
                worker.command(__name__, str(folder / "health"), str(began)),
                env={name: value for name, value in own.items() if value is not None},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C ends the run, and that ends it
            )
        except OSError:
            yield Watch(None)
            return
        try:
            yield Watch(folder / "health")
        finally:
            process.kill()
            process.wait()


def main() -> None:
    """Note what NVML says, until the parent has ended or NVML fails."""
    from gpudiag.hardware import nvml

    parent, every, lines, began = os.getppid(), EVERY_S, 0, float(sys.argv[2])
    with Path(sys.argv[1]).open("ab", buffering=0) as file, nvml.health() as ask:
        due = time.monotonic()
        while os.getppid() == parent:
            file.write(msgspec.json.encode(ask(round(time.monotonic() - began, 2))) + b"\n")
            lines += 1
            if lines % MOST == 0:
                every *= 2
            due = max(due + every, time.monotonic())
            time.sleep(max(0.0, due - time.monotonic()))
