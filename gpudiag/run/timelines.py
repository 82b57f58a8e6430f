"""Memory in use on the GPUs of a probe, sampled through NVML in the child while the probe measures.

Sampling must not disturb the measurement: a thread asks NVML, starts no CUDA, takes no GPU memory, and rests fifty
times as long as its question took. A failure costs only the timeline.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from gpudiag.hardware import nvml
from gpudiag.model.report import Timeline

EVERY_S = 0.05
"""Least seconds between two questions; a probe of one second has twenty."""
MOST_SHARE = 0.02
"""The most of a probe's time that asking for the memory may take, as a fraction."""
MOST_SAMPLES = 200
"""The most samples of one GPU. Beyond it every other sample is dropped, and the time between two is doubled."""
_JOIN_S = 1.0
"""How long the child waits for the sampling thread, which hangs if NVML does."""


class Timelines:
    """The timelines of a probe's GPUs."""

    def __init__(self, uuids: tuple[str, ...]) -> None:
        self._uuids = uuids
        self._samples: dict[str, list[tuple[int, int]]] = {uuid: [] for uuid in uuids}
        self._looks: dict[str, list[int]] = {uuid: [] for uuid in uuids}
        self._lock = threading.Lock()
        self._began: float | None = None
        self._seconds = 0.0
        self._every_s = EVERY_S
        self._thread: threading.Thread | None = None
        self._end = threading.Event()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Sample the memory during the block."""
        self._began = time.monotonic()
        self._start()
        try:
            yield
        finally:
            self._stop()
            self._seconds = time.monotonic() - self._began

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Pause sampling and release NVML during the block, in which this process is forked."""
        was, process = self._thread, os.getpid()
        self._stop()
        try:
            yield
        finally:
            if was is not None and os.getpid() == process:  # the copy does not sample: this process goes on
                self._start()

    def look(self, uuid: str, used_bytes: int) -> None:
        """Record a value that the probe itself has read."""
        if self._began is not None and uuid in self._looks:
            self._looks[uuid].append(self._note(uuid, used_bytes))

    def taken(self) -> tuple[Timeline, ...]:
        """Return the timelines of the GPUs that have samples."""
        return tuple(
            Timeline(uuid, round(self._seconds, 3), tuple(samples), tuple(self._looks[uuid]))
            for uuid, samples in self._samples.items()
            if samples
        )

    def _start(self) -> None:
        self._end = threading.Event()
        thread = threading.Thread(target=self._sample, args=(self._end,), daemon=True)
        with contextlib.suppress(RuntimeError):  # a limit of processes allows no thread
            thread.start()
            self._thread = thread

    def _stop(self) -> None:
        self._end.set()
        if self._thread is not None:
            self._thread.join(_JOIN_S)
            self._thread = None

    def _sample(self, end: threading.Event) -> None:
        with contextlib.suppress(Exception), nvml.in_use(self._uuids) as ask:  # pynvml may be missing, NVML may fail
            while True:
                asked_at = time.monotonic()
                for uuid, used in zip(self._uuids, ask(), strict=True):
                    self._note(uuid, used)
                took_s = time.monotonic() - asked_at
                if end.wait(max(self._every_s, took_s / MOST_SHARE)):
                    return

    def _note(self, uuid: str, used_bytes: int) -> int:
        """Add a sample and return its time in milliseconds."""
        with self._lock:
            at = round(1000 * (time.monotonic() - (self._began or 0.0)))
            samples = self._samples[uuid]
            if not samples or samples[-1][1] != used_bytes:
                samples.append((at, used_bytes))
            if len(samples) > MOST_SAMPLES:
                del samples[1:-1:2]
                self._every_s *= 2
            return at
