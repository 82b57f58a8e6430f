"""Examples of ``host.collectives``."""

from __future__ import annotations

from typing import Any

from examples.facts import example_gpu, example_with_gpus
from examples.hosts import Case
from gpudiag.knowledge.variables import NO_JSON
from gpudiag.model.facts import (
    ContainerFacts,
    DeviceNodeFacts,
    EnvironmentFacts,
    Facts,
    ProcessIdentity,
    TakenPort,
)

_TWO_WORKERS = '{"cluster": {"worker": 2, "ps": 1}, "task": {"type": "%s", "index": %d}}'


_DOCKER = ContainerFacts("docker", ("/.dockerenv",), False, None, shm_bytes=64 << 20)


_BOTH = tuple(example_gpu(index).pci_bus_id for index in range(2))


def _with(gpus: int = 2, **variables: str) -> Facts:
    return example_with_gpus(gpus, environment=EnvironmentFacts(variables))


def _between(**facts: Any) -> Facts:
    return example_with_gpus(2, device_nodes=DeviceNodeFacts((), _BOTH, **facts))


def _sockets(value: str) -> Facts:
    nodes = DeviceNodeFacts((), _BOTH, network=("docker0", "eth0"))
    return example_with_gpus(2, device_nodes=nodes, environment=EnvironmentFacts({"NCCL_SOCKET_IFNAME": value}))


def _infiniband(memlock: int | None) -> ContainerFacts:
    return ContainerFacts(None, (), False, None, memlock_bytes=memlock, infiniband=("/dev/infiniband/uverbs0",))


def _taken(port: TakenPort | None) -> Facts:
    return example_with_gpus(1, environment=EnvironmentFacts({}, port_taken=port))


CASES = (
    Case("two GPUs", expect=(), facts=example_with_gpus(2)),
    Case("Docker's own /dev/shm", expect=("small_shm",), facts=example_with_gpus(2, container=_DOCKER)),
    Case("the same with one GPU", expect=(), facts=example_with_gpus(1, container=_DOCKER)),
    Case(
        "--shm-size=1g",
        expect=(),
        facts=example_with_gpus(2, container=ContainerFacts("docker", ("/.dockerenv",), False, None, 1 << 30)),
    ),
    Case("little locked", expect=("low_memlock",), facts=example_with_gpus(2, container=_infiniband(64 << 10))),
    Case("no limit on locked memory", expect=(), facts=example_with_gpus(2, container=_infiniband(None))),
    Case(
        "groups are translated",
        expect=("iommu_translates",),
        facts=_between(iommu_groups=dict.fromkeys(_BOTH, "DMA-FQ"), iommus=("dmar0",)),
    ),
    Case(
        "groups are passed through",
        expect=(),
        facts=_between(iommu_groups=dict.fromkeys(_BOTH, "identity"), iommus=("dmar0",)),
    ),
    Case("an IOMMU that is on", expect=("iommu_translates",), facts=_between(iommus=("ivhd0",))),
    Case("iommu=pt", expect=(), facts=_between(iommus=("ivhd0",), iommu_options=("iommu=pt",))),
    Case("an interface that is not there", expect=("no_interface",), facts=_sockets("ib0")),
    Case("the beginning of one that is", expect=(), facts=_sockets("eth")),
    Case("all but one", expect=(), facts=_sockets("^docker")),
    Case("all but all", expect=("no_interface",), facts=_sockets("^docker,eth")),
    Case("its whole name", expect=(), facts=_sockets("=eth0")),
    Case("not its whole name", expect=("no_interface",), facts=_sockets("=eth")),
    Case("one of two workers", expect=("other_workers",), facts=_with(1, TF_CONFIG=_TWO_WORKERS % ("worker", 1))),
    Case(
        "another process has its own port",
        expect=("port_taken",),
        facts=_taken(TakenPort(2222, 77, ProcessIdentity(user="bob", command="python old.py"))),
    ),
    Case("one that may not be seen has it", expect=("port_taken",), facts=_taken(TakenPort(2222))),
    Case("its own port is free", expect=(), facts=_taken(None)),
    Case("a cluster that is no JSON", expect=(), facts=_with(1, TF_CONFIG=NO_JSON)),
    Case("a parameter server", expect=(), facts=_with(1, TF_CONFIG=_TWO_WORKERS % ("ps", 0))),
)
