"""The nodes of a cluster: which of them can be checked now, why others cannot, their GPUs and racks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpudiag.errors import UsageError, nearest, sentences
from gpudiag.fleet.engines import Roster

GPU = "nvidia.com/gpu"
_RACKS = (
    "topology.kubernetes.io/rack",
    "network.topology.nvidia.com/leaf",
    "topology.kubernetes.io/zone",
)
"""Labels that say where a node is; the first one that a node has is its rack."""
_PRESENT = "nvidia.com/gpu.present"
"""The label of a node with a GPU, by NVIDIA's feature discovery, whether or not its device plugin works."""


def _path(*keys: str) -> str:
    return "{." + ".".join(key.replace(".", r"\.") for key in keys) + '}{"\\t"}'


JSONPATH = (
    "jsonpath={range .items[*]}"
    + _path("metadata", "name")
    + _path("spec", "unschedulable")
    + '{.status.conditions[?(@.type=="Ready")].status}{"\\t"}'
    + '{.status.conditions[?(@.type=="Ready")].reason}{"\\t"}'
    + _path("status", "allocatable", GPU)
    + _path("status", "capacity", GPU)
    + _path("metadata", "labels", _PRESENT)
    + "".join(_path("metadata", "labels", label) for label in _RACKS)
    + '{range .spec.taints[*]}{.key}={.value}:{.effect},{end}{"\\n"}{end}'
)
"""What kubectl prints of the nodes, a line each: as JSON a node would bring the names of all its images."""


@dataclass(frozen=True)
class ClusterNode:
    """A node as the API server knows it."""

    name: str
    is_cordoned: bool
    ready: str
    """``True``, ``False`` or ``Unknown``."""
    ready_reason: str
    allocatable_gpus: int
    has_gpus: bool
    """Whether it has GPUs or should have, allocatable or not."""
    rack: str
    taints: tuple[tuple[str, str, str], ...]
    """Key, value and effect of each."""

    def fault(self, gpus: int | None, tolerations: Sequence[Mapping[str, Any]]) -> str:
        """Return why no check can run here now, or ""; ``gpus`` is how many it asks for, None for all."""
        if self.ready != "True":
            return f"NotReady: {self.ready_reason or self.ready or 'it does not say why'}"
        barring = [
            f"{key}={value}:{effect}" if value else f"{key}:{effect}"
            for key, value, effect in self.taints
            if effect in ("NoSchedule", "NoExecute")
            and not any(_tolerates(toleration, key, value, effect) for toleration in tolerations)
        ]
        if self.is_cordoned and any(taint.startswith("node.kubernetes.io/unschedulable") for taint in barring):
            return "cordoned: kubectl uncordon ends that"
        if barring:
            return f"tainted, and the check does not tolerate it: {', '.join(barring)}"
        wanted = 1 if gpus is None else gpus
        if self.allocatable_gpus < wanted:
            return f"{self.allocatable_gpus} {GPU} are allocatable, {wanted} needed: is its device plugin running?"
        return ""


def _tolerates(toleration: Mapping[str, Any], key: str, value: str, effect: str) -> bool:
    """Return whether a toleration fits a taint, as
    https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/ has it."""
    if toleration.get("effect", effect) not in ("", effect) or toleration.get("key", key) not in ("", key):
        return False
    return bool(toleration.get("operator", "Equal") == "Exists" or toleration.get("value", "") == value)


def parsed(output: str) -> dict[str, ClusterNode]:
    """Return the nodes in what kubectl printed for :data:`JSONPATH`."""
    nodes = {}
    for line in output.splitlines():
        name, cordoned, ready, reason, allocatable, capacity, present, *racks, taints = line.split("\t")
        nodes[name] = ClusterNode(
            name,
            cordoned == "true",
            ready,
            reason,
            _number(allocatable),
            _number(capacity) > 0 or present == "true",
            next(filter(None, racks), ""),
            tuple(_taint(taint) for taint in taints.split(",") if taint),
        )
    return nodes


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def _taint(text: str) -> tuple[str, str, str]:
    rest, _, effect = text.rpartition(":")
    key, _, value = rest.partition("=")
    return key, value, effect


def roster(
    nodes: Mapping[str, ClusterNode],
    names: Iterable[str],
    gpus: int | None,
    tolerations: Sequence[Mapping[str, Any]],
) -> Roster:
    """Return the nodes of a check; without names all that have GPUs. Raises :class:`UsageError` if there is none."""
    asked = tuple(names) or tuple(name for name, node in nodes.items() if node.has_gpus)
    if not asked:
        raise UsageError(
            f"none of the {len(nodes)} nodes of this cluster has {GPU}: NVIDIA's device plugin is missing, or it is "
            "another cluster ('kubectl config current-context')."
        )
    faults = {
        name: nodes[name].fault(gpus, tolerations)
        if name in nodes
        else sentences("the cluster has no node of this name.", nearest(name, nodes))
        for name in asked
    }
    return Roster(
        asked,
        {name: fault for name, fault in faults.items() if fault},
        {name: nodes[name].rack for name in asked if name in nodes and nodes[name].rack},
    )
