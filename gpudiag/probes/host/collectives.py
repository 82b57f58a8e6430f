"""Several GPUs and machines can exchange data: shared memory, locked memory and a network interface are available.

What it does
    If several GPUs are in scope, reads what a collective operation (NCCL, `MirroredStrategy`) depends on: the size
    of `/dev/shm` in a container, how much memory may be locked if InfiniBand is there, and whether the IOMMU
    translates addresses between the GPUs. Reads the number of workers in `TF_CONFIG`.
Why it matters
    Each GPU works alone, and a fault shows only at the first all-reduce: as "NCCL: unhandled system error", or as a
    program that hangs silently.
What to do
    Nothing while training works: all but `no_interface` are notes. Each names the fix in case it fails.
"""

from __future__ import annotations

from contextlib import suppress

import msgspec

from gpudiag.knowledge.variables import CLUSTER, NO_JSON, WITHHELD
from gpudiag.model.facts import (
    Facts,
)
from gpudiag.model.visibility import gpus_in_scope
from gpudiag.probe import Needs, Probe

PROBE = Probe(needs=Needs(tensorflow=False), families=("nvml", "container", "device_nodes", "environment"), quick=True)

_TRAINING = ("chief", "master", "worker")
"""Cluster jobs that compute gradients; a parameter server or an evaluator may well be without a GPU."""


def figure(facts: Facts) -> str:
    gpus = len(gpus_in_scope(facts))
    workers = len(training_workers(facts))
    return ", ".join([f"{gpus} GPU{'' if gpus == 1 else 's'}", *([f"{workers} workers"] if workers > 1 else [])])


def training_workers(facts: Facts) -> tuple[str, ...]:
    """Return the training tasks of ``TF_CONFIG``, such as ``worker 0``; none if the variable is unset."""
    cluster = _told(facts).cluster
    return tuple(f"{job} {index}" for job in _TRAINING for index in range(min(cluster.get(job, 0), _MOST_WORKERS)))


def own_task(facts: Facts) -> str | None:
    """Return this process's own task in ``TF_CONFIG``, such as ``worker 1``."""
    task = _told(facts).task
    return None if task is None else f"{task.type} {task.index}"


_MOST_WORKERS = 10_000
"""More workers do not train together, although a report may claim any number."""


class _Task(msgspec.Struct):
    type: str
    index: int


class _Cluster(msgspec.Struct):
    """The part of ``TF_CONFIG`` that reports keep."""

    cluster: dict[str, int] = {}
    task: _Task | None = None


def _told(facts: Facts) -> _Cluster:
    value = facts.variables.get(CLUSTER, WITHHELD)
    if value not in (WITHHELD, NO_JSON):
        with suppress(msgspec.MsgspecError):  # of a report that somebody has edited
            return msgspec.json.decode(value, type=_Cluster)
    return _Cluster()
