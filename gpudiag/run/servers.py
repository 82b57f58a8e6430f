"""The servers of a run, and the environment of its children.

A run without a GPU waits mostly for the import of TensorFlow. So the import begins here, before this process imports
probes, causes and formats of reports.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from gpudiag.isolate import Bounds, ServerSpec, Supervision, supervise
from gpudiag.knowledge.variables import GRAPH_FLAGS, JIT_BY_DEFAULT, PLUGINS, without_compiling
from gpudiag.run.machine import ExaminedMachine

if TYPE_CHECKING:
    from gpudiag.catalogue import Entry

PLAIN = "plain"
"""The server that has not imported TensorFlow; it gathers facts and runs probes that need a new interpreter."""
TENSORFLOW = "tensorflow"

# These replace the caller's log levels, which may hide the lines that a verdict is based on (TF_CPP_MIN_LOG_LEVEL=3
# hides nearly all of them), or flood the log. TensorFlow reads them while it is imported.
LOG_LEVELS: dict[str, str | None] = {
    **dict.fromkeys(
        ("TF_CPP_MIN_LOG_LEVEL", "TF_CPP_MIN_VLOG_LEVEL", "TF_CPP_MAX_VLOG_LEVEL", "TF_CPP_LOG_THREAD_ID"), None
    ),
    "TF_CPP_VMODULE": "dso_loader=1",  # names each library that cannot be opened, as no other level does (2.18-2.21)
}

REPLACED = (*LOG_LEVELS, JIT_BY_DEFAULT, GRAPH_FLAGS, PLUGINS)
"""All variables that :func:`environment_for` may replace."""


def environment_for(machine: ExaminedMachine) -> dict[str, str | None]:
    """Return the variables to set (or, with None, to clear) for every child on ``machine``, beside those of its
    probe."""
    changes = {**machine.environment, **LOG_LEVELS, **without_compiling(os.environ)}
    # When TensorFlow has loaded plug-ins, it queries the devices, and the process that imported it cannot be forked:
    # discovery.trace alone loads them. If there are none, the import fails, and must.
    plugins = os.environ.get(PLUGINS)
    return changes | {PLUGINS: None} if plugins and Path(plugins).exists() else changes


def server_of(entry: Entry, isolation: str) -> str | None:
    """Return the server on which a probe runs; None for a probe without a child."""
    if entry.reading is None:
        return None
    return PLAIN if isolation == "spawn" else TENSORFLOW


def begun(machine: ExaminedMachine, timeout_s: float | None, *, tensorflow: bool) -> Supervision:
    """Return the supervision of a run on ``machine``; with ``tensorflow`` a server has begun to import TensorFlow.

    ``timeout_s`` is the time limit of that import in seconds; None: the usual limit.
    """
    bounds = Bounds() if timeout_s is None else Bounds(preload_s=timeout_s)
    environment = environment_for(machine)
    preload = "preload_simulated" if machine.world.simulated else "preload"
    servers = {
        PLAIN: ServerSpec(ahead="gpudiag.run.judgement:import_all", env=environment),
        TENSORFLOW: ServerSpec(preload=f"gpudiag.run.worker:{preload}", what="import tensorflow", env=environment),
    }
    children = supervise(servers, bounds)
    if tensorflow:
        children.prepare(TENSORFLOW)
    return children
