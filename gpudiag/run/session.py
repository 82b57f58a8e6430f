"""What the parts of a run share: its children and their environment, the devices that are in use, when it must end."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from gpudiag.catalogue import Entry
from gpudiag.hardware.locks import Devices
from gpudiag.isolate import Supervision
from gpudiag.knowledge.variables import GRAPH_FLAGS, JIT_BY_DEFAULT, PLUGINS, without_compiling
from gpudiag.model.report import RUN_ENDED, Cause, Gpu
from gpudiag.run.answers import Answers
from gpudiag.run.machine import Machine
from gpudiag.run.options import Observer, Options
from gpudiag.run.signals import Signals

PLAIN = "plain"
"""The server that has imported nothing; it gathers facts and runs what needs a new interpreter."""
TENSORFLOW = "tensorflow"
TICK_S = 0.1

# These replace the caller's log levels, which may hide the lines that a verdict is based on (TF_CPP_MIN_LOG_LEVEL=3
# hides nearly all of them), or flood the log. TensorFlow reads them while it is imported.
LOG_LEVELS: dict[str, str | None] = {
    **dict.fromkeys(
        ("TF_CPP_MIN_LOG_LEVEL", "TF_CPP_MIN_VLOG_LEVEL", "TF_CPP_MAX_VLOG_LEVEL", "TF_CPP_LOG_THREAD_ID"), None
    ),
    "TF_CPP_VMODULE": "dso_loader=1",  # names each library that cannot be opened, as no other level does (2.18-2.21)
}

REPLACED = (*LOG_LEVELS, JIT_BY_DEFAULT, GRAPH_FLAGS, PLUGINS)
"""All that :func:`environment_for` may replace."""


def environment_for(machine: Machine) -> dict[str, str | None]:
    """Return what is set (or, with None, cleared) for every child on ``machine``, beside what its probe declares."""
    changes = {**machine.environment, **LOG_LEVELS, **without_compiling(os.environ)}
    # When TensorFlow has loaded plug-ins, it queries the devices, and the process that imported it cannot be forked:
    # discovery.trace alone loads them. If there are none, the import fails, and must.
    plugins = os.environ.get(PLUGINS)
    return changes | {PLUGINS: None} if plugins and Path(plugins).exists() else changes


def server_of(entry: Entry, options: Options) -> str | None:
    """Return the server a probe runs on; None for a probe that has nothing to run."""
    if entry.reading is None:
        return None
    return PLAIN if options.isolation == "spawn" else TENSORFLOW


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
        self.devices = Devices(options.machine.locks)
        self.answers = Answers(children, PLAIN, options.timeout_s)
        self.began = time.monotonic()
        self._signals = signals
        self._until = until

    def stopped(self) -> tuple[Cause, str] | None:
        """Return why the run must end now, or None while it may continue."""
        if self._signals.received is not None:
            return Cause.INTERRUPTED, f"stopped by {signal.Signals(self._signals.received).name}"
        if self._until is not None and time.monotonic() >= self._until:
            return Cause.TIMEOUT, f"the deadline of {self.options.deadline_s:g} s {RUN_ENDED}"
        return None

    def other_run(self, gpus: tuple[Gpu, ...]) -> str:
        """Return, in words, who else holds one of these GPUs."""
        holder = self.devices.holder(gpus)
        return f"another run of gpudiag ({holder})" if holder else "another run of gpudiag"

    def taken(self, gpus: tuple[Gpu, ...]) -> bool:
        """Wait until the GPUs can be used beside other runs; False if that takes too long."""
        while not self.devices.take(gpus, exclusive=False):
            if self.devices.waited_s(gpus) > self.options.lock_wait_s or self.stopped():
                return False
            time.sleep(TICK_S)
        return True
