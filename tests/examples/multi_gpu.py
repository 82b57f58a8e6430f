"""Examples of causes: several GPUs, several workers, and what stands between them."""

from __future__ import annotations

import msgspec

from examples import Example
from examples.facts import example, example_gpu, example_with_gpus
from gpudiag.cause import Evidence
from gpudiag.model.facts import ContainerFacts, DeviceNodeFacts, EnvironmentFacts, Facts
from gpudiag.model.report import Broken, Judged, NoReading, Row
from gpudiag.probes.discovery import trace

_UNHANDLED = "INTERNAL: NCCL: unhandled system error. Set NCCL_DEBUG=WARN for detail."
_NO_SPACE = (
    "host:101:150 [0] misc/shmutils.cc:87 NCCL WARN Error: failed to extend /dev/shm/nccl-2Qx9aB to 33030532 bytes, "
    "error: No space left on device (28)"
)
_DOCKER = ContainerFacts("docker", ("/.dockerenv",), False, None, shm_bytes=64 << 20)
_ENOUGH = msgspec.structs.replace(_DOCKER, shm_bytes=1 << 30)
_INFINIBAND = ContainerFacts(None, (), False, None, memlock_bytes=64 << 10, infiniband=("/dev/infiniband/uverbs0",))
_UNLIMITED = msgspec.structs.replace(_INFINIBAND, memlock_bytes=None)
_BOTH = tuple(example_gpu(index).pci_bus_id for index in range(2))
_AMD = DeviceNodeFacts((), _BOTH, iommus=("ivhd0",))
_ALL_REDUCE = (
    "INFO:tensorflow:Collective all_reduce tensors: 6 all_reduces, num_devices = 2, group_size = 2, "
    "implementation = CommunicationImplementation.NCCL, num_packs = 1"
)
_REFUSED = "E0000 00:00:1795263721.117904   18644 utils.cc:181] NOT_FOUND: TensorFlow device GPU:0 was not registered"


def _two(*lines: str, container: ContainerFacts = _DOCKER) -> Evidence:
    return Evidence(example_with_gpus(2, container=container), lines=lines)


def _between(nodes: DeviceNodeFacts, *lines: str, rows: tuple[Row, ...] = ()) -> Evidence:
    return Evidence(example_with_gpus(2, device_nodes=nodes), rows=rows, lines=lines)


def _sockets(value: str) -> Evidence:
    nodes = DeviceNodeFacts((), _BOTH, network=("docker0", "eth0"))
    variables = EnvironmentFacts({"NCCL_SOCKET_IFNAME": value})
    return Evidence(example_with_gpus(2, device_nodes=nodes, environment=variables))


def _in_cluster(facts: Facts, *lines: str, listed: int = 0, workers: int = 2, job: str = "worker") -> Evidence:
    told = f'{{"cluster": {{"worker": {workers}, "ps": 1}}, "task": {{"type": "{job}", "index": 0}}}}'
    facts = msgspec.structs.replace(facts, environment=EnvironmentFacts({"TF_CONFIG": told}))
    reading = trace.read_log((), listed, None)
    return Evidence(facts, rows=(Row("discovery.trace", (), Judged(), 0.0, reading),), lines=lines)


def _distribution(cause: NoReading) -> tuple[Row, ...]:
    uuids = tuple(example_gpu(index).uuid for index in range(2))
    return (Row("distribution.reduction", uuids, Broken(cause, "no result within 60 s"), 60.0),)


EXAMPLES: dict[str, tuple[Example, ...]] = {
    "nccl_small_shared_memory": (
        Example("system error", _two(_UNHANDLED)),
        Example("NCCL names it", _two("h:1:2 [0] shmutils.cc:62 NCCL WARN Call to posix_fallocate failed")),
        Example("it was full there", _two(_NO_SPACE, _UNHANDLED, container=_ENOUGH)),
        Example("one GPU here", Evidence(example_with_gpus(1), lines=(_NO_SPACE,))),
        Example("enough of it", _two(_UNHANDLED, container=_ENOUGH), fires=False),
        Example("no failure", _two("Epoch 1/10"), fires=False),
        Example("one GPU", Evidence(example_with_gpus(1, container=_DOCKER), lines=(_UNHANDLED,)), fires=False),
    ),
    "nccl_low_memory_lock": (
        Example("system error", _two(_UNHANDLED, container=_INFINIBAND)),
        Example("NCCL names it", _two("NCCL WARN Call to ibv_reg_mr failed", container=_INFINIBAND)),
        Example("no limit", _two(_UNHANDLED, container=_UNLIMITED), fires=False),
        Example("no failure", _two("Epoch 1/10", container=_INFINIBAND), fires=False),
    ),
    "nccl_no_interface": (
        Example("of another machine", _sockets("ib0")),
        Example("one of them", _sockets("eth"), fires=False),
        Example("not set", _sockets(""), fires=False),
    ),
    "nccl_system_error": (
        Example("nothing else is found", _two(_UNHANDLED, container=_ENOUGH)),
        Example(
            "NCCL names another call",
            _two(
                _UNHANDLED,
                "h:1:2 [0] socket.cc:9 NCCL WARN Call to bind failed : Address in use",
                container=_ENOUGH,
            ),
        ),
        Example("little shared memory", _two(_UNHANDLED), fires=False),
        Example("shared memory was full there", _two(_UNHANDLED, _NO_SPACE, container=_ENOUGH), fires=False),
        Example("no failure", _two("Epoch 1/10", container=_ENOUGH), fires=False),
    ),
    "iommu_between_gpus": (
        Example("the log ends at an all-reduce", _between(_AMD, "Epoch 1/10", _ALL_REDUCE)),
        Example("a probe stood still", _between(_AMD, rows=_distribution(NoReading.TIMEOUT))),
        Example("a probe ended in another way", _between(_AMD, rows=_distribution(NoReading.SIGNAL)), fires=False),
        Example(
            "passed through",
            _between(msgspec.structs.replace(_AMD, iommu_options=("iommu=pt",)), _ALL_REDUCE),
            fires=False,
        ),
        Example("the log goes on", _between(_AMD, _ALL_REDUCE, "1", "2", "3"), fires=False),
        Example("no sign of a fault", _between(_AMD), fires=False),
    ),
    "cluster_worker_without_gpu": (
        Example("here", _in_cluster(example())),
        Example("in the log of another", _in_cluster(example_with_gpus(1), _REFUSED, listed=1)),
        Example("in a log alone", Evidence(example_with_gpus(1), lines=(_REFUSED,))),
        Example("it has one", _in_cluster(example_with_gpus(1), listed=1), fires=False),
        Example("one worker", _in_cluster(example(), workers=1), fires=False),
        Example("a parameter server", _in_cluster(example(), job="ps"), fires=False),
        Example("no cluster", Evidence(example()), fires=False),
    ),
}
