"""Several GPUs, and several machines, find what they need to exchange data: memory that is shared or locked, a way.

What it does
    Where several GPUs are in scope, reads what a collective operation (NCCL, `MirroredStrategy`) depends on: the size
    of `/dev/shm` in a container, how much memory may be locked where InfiniBand is there, and whether the IOMMU
    translates addresses between the GPUs. Reads the number of workers in `TF_CONFIG`.
Why it matters
    Each GPU works alone, and the fault shows at the first all-reduce: as "NCCL: unhandled system error", or as a
    program that stands still without a word.
What a failure means
    `small_shm`: `/dev/shm` of this container is small; NCCL keeps its buffers there where GPUs have no direct way.
    `low_memlock`: less memory may be locked than NCCL wants to register with InfiniBand.
    `iommu_translates`: on PCI Express, the IOMMU sends traffic between GPUs through the processor, where it can stall.
    `no_interface`: `NCCL_SOCKET_IFNAME` names no network interface of this machine, so NCCL cannot start.
    `other_workers`: this machine is one worker of several, and the others cannot be seen from here.
What to do
    Nothing while training works: all but `no_interface` are notes. Each names the cure for when it does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import msgspec

from gpudiag.hostfacts import (
    DeviceNodeFacts,
    Facts,
    Unknown,
)
from gpudiag.model import Finding, Limits, Severity
from gpudiag.probe import Kind, Needs, Probe
from gpudiag.scope import gpus_in_scope
from gpudiag.variables import CLUSTER, NO_JSON, WITHHELD

PROBE = Probe(needs=Needs(tensorflow=False), families=("nvml", "container", "device_nodes", "environment"), quick=True)

SMALL_SHM = Kind(
    "small_shm",
    Severity.NOTE,
    "this container has {size_mib} MiB of /dev/shm for {gpus} GPUs",
    "Where NCCL fails with 'unhandled system error': docker run --shm-size=1g --ulimit memlock=-1, or --ipc=host.",
)
LOW_MEMLOCK = Kind(
    "low_memlock",
    Severity.NOTE,
    "{device} is here, and a process may lock {size_kib} KiB of memory",
    "Where NCCL fails with 'unhandled system error': docker run --ulimit memlock=-1, or ulimit -l unlimited.",
)
IOMMU_TRANSLATES = Kind(
    "iommu_translates",
    Severity.NOTE,
    "the IOMMU translates addresses between the GPUs: {evidence}",
    "Where training stands still at the first all-reduce: export NCCL_P2P_DISABLE=1, or boot with iommu=pt.",
)
NO_INTERFACE = Kind(
    "no_interface",
    Severity.WARNING,
    "NCCL_SOCKET_IFNAME={value!r} names none of this machine's network interfaces: {interfaces}",
    "unset NCCL_SOCKET_IFNAME, or set it to one of them.",
)
OTHER_WORKERS = Kind(
    "other_workers",
    Severity.NOTE,
    "TF_CONFIG: this is {task} of {workers} workers, and the others cannot be seen from here",
    "Before training, on every worker: gpudiag check --require-gpus 1. One without a GPU holds up all of them.",
)

ENOUGH_SHM = 1 << 30
"""What NVIDIA recommends for its TensorFlow containers; Docker's own is 64 MiB."""
ENOUGH_MEMLOCK = 1 << 30
_TRAINING = ("chief", "master", "worker")
"""Jobs of a cluster that compute gradients; a parameter server or an evaluator may well be without a GPU."""


def judge(facts: Facts, limits: Limits) -> Iterator[Finding]:
    container, nodes = facts.container, facts.device_nodes
    gpus = len(gpus_in_scope(facts))
    workers = training_workers(facts)
    if gpus > 1 and not isinstance(container, Unknown) and not isinstance(nodes, Unknown):
        if container.name and container.shm_bytes is not None and container.shm_bytes < ENOUGH_SHM:
            yield SMALL_SHM.found(size_mib=container.shm_bytes >> 20, gpus=gpus)
        locked = container.memlock_bytes
        if container.infiniband and locked is not None and locked < ENOUGH_MEMLOCK:
            yield LOW_MEMLOCK.found(device=container.infiniband[0], size_kib=locked >> 10)
        evidence = _translation(nodes, {gpu.pci_bus_id for gpu in gpus_in_scope(facts)})
        if evidence:
            yield IOMMU_TRANSLATES.found(evidence=evidence)
    if gpus and (gpus > 1 or len(workers) > 1) and not isinstance(nodes, Unknown):
        chosen = facts.variables.get("NCCL_SOCKET_IFNAME", "")
        if chosen and nodes.network and not _interfaces(chosen, nodes.network):
            yield NO_INTERFACE.found(value=chosen, interfaces=" ".join(nodes.network))
    if len(workers) > 1 and (task := own_task(facts)) in workers:
        yield OTHER_WORKERS.found(task=task, workers=len(workers))


def figure(facts: Facts) -> str:
    gpus = len(gpus_in_scope(facts))
    workers = len(training_workers(facts))
    return ", ".join([f"{gpus} GPU{'' if gpus == 1 else 's'}", *([f"{workers} workers"] if workers > 1 else [])])


def training_workers(facts: Facts) -> tuple[str, ...]:
    """Return the tasks of ``TF_CONFIG`` that train, such as ``worker 0``; none where it is not set."""
    cluster = _told(facts).cluster
    return tuple(f"{job} {index}" for job in _TRAINING for index in range(min(cluster.get(job, 0), _MOST_WORKERS)))


def own_task(facts: Facts) -> str | None:
    """Return this process's own task in ``TF_CONFIG``, such as ``worker 1``."""
    task = _told(facts).task
    return None if task is None else f"{task.type} {task.index}"


_MOST_WORKERS = 10_000
"""More do not train together; a report may say any number."""


class _Task(msgspec.Struct):
    type: str
    index: int


class _Cluster(msgspec.Struct):
    """What is kept of ``TF_CONFIG``."""

    cluster: dict[str, int] = {}
    task: _Task | None = None


def _told(facts: Facts) -> _Cluster:
    value = facts.variables.get(CLUSTER, WITHHELD)
    if value not in (WITHHELD, NO_JSON):
        with suppress(msgspec.MsgspecError):  # of a report that somebody has edited
            return msgspec.json.decode(value, type=_Cluster)
    return _Cluster()


def _translation(nodes: DeviceNodeFacts, gpus: set[str]) -> str:
    """Say what shows that the IOMMU translates for ``gpus``; "" where it passes through, or where there is none."""
    kinds = {name: kind for name, kind in nodes.iommu_groups.items() if name in gpus}
    if kinds:
        translated = [name for name, kind in kinds.items() if kind.startswith("DMA")]
        return f"group of {' '.join(translated)}: {kinds[translated[0]]}" if len(translated) > 1 else ""
    passed = {"iommu=pt", "iommu=off", "intel_iommu=off", "amd_iommu=off"} & set(nodes.iommu_options)
    return " ".join(["/sys/class/iommu:", *nodes.iommus, *nodes.iommu_options]) if nodes.iommus and not passed else ""


def _interfaces(chosen: str, present: tuple[str, ...]) -> list[str]:
    """Return what ``NCCL_SOCKET_IFNAME`` chooses: beginnings of names, ``=`` whole names, ``^`` all but those."""
    names = [name for name in chosen.lstrip("^=").split(",") if name]
    whole = chosen.lstrip("^").startswith("=")
    return [
        interface
        for interface in present
        if any(interface == name if whole else interface.startswith(name) for name in names)
        is not chosen.startswith("^")
    ]
