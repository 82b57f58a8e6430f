"""State that the parts of a run share: its children and their environment, the devices in use, its deadline."""

from __future__ import annotations

import signal
import time

from gpudiag.hardware.locks import GpuLocks
from gpudiag.isolate import TICK_S, Supervision
from gpudiag.model.report import RUN_ENDED, Gpu, NoReading
from gpudiag.run.gpu_watch import GpuWatch
from gpudiag.run.jobs import Jobs
from gpudiag.run.options import Observer, Options
from gpudiag.run.servers import PLAIN
from gpudiag.run.signals import Signals


class Session:
    """A run that is under way."""

    def __init__(
        self,
        options: Options,
        children: Supervision,
        observer: Observer,
        signals: Signals,
        until: float | None,
    ) -> None:
        self.options = options
        self.children = children
        self.observer = observer
        self.devices = GpuLocks(options.machine.locks)
        self.jobs = Jobs(children)
        self.gpu_watch = GpuWatch(self.jobs, PLAIN, options.timeout_s)
        self.began = time.monotonic()
        self._signals = signals
        self._until = until
        self._overdue: tuple[NoReading, str] | None = None
        """The end of the run by its deadline; it is recorded once, so that all rows give the same reason."""

    def stopped(self) -> tuple[NoReading, str] | None:
        """Return why the run must end now, or None while it may continue."""
        if self._signals.received is not None:
            return NoReading.INTERRUPTED, f"stopped by {signal.Signals(self._signals.received).name}"
        if self._overdue is None and self._until is not None and time.monotonic() >= self._until:
            deadline, busy = f"the deadline of {self.options.deadline_s:g} s {RUN_ENDED}", self.children.busy()
            self._overdue = (
                (NoReading.BUSY, f"the machine was busy ({busy}): {deadline}")
                if busy
                else (NoReading.TIMEOUT, deadline)
            )
        return self._overdue

    def other_run(self, gpus: tuple[Gpu, ...]) -> str:
        """Return who else holds one of these GPUs, in words."""
        holder = self.devices.holder(gpus)
        return f"another run of gpudiag ({holder})" if holder else "another run of gpudiag"

    def taken(self, gpus: tuple[Gpu, ...]) -> bool:
        """Wait until other runs have released the GPUs; return False if that takes too long."""
        while not self.devices.take(gpus, exclusive=False):
            if self.devices.waited_s(gpus) > self.options.lock_wait_s or self.stopped():
                return False
            time.sleep(TICK_S)
        return True
