"""Several GPUs and several workers: what stands between them."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from gpudiag.diagnosis.rule import Evidence, Match, Rule, RuleCase
from gpudiag.hostfacts import (
    ContainerFacts,
    DeviceNodeFacts,
    EnvironmentFacts,
    Facts,
    Unknown,
    example,
    example_gpu,
    example_with_gpus,
)
from gpudiag.knowledge.log import GPUS_EXCHANGE, NCCL_SYSTEM_ERROR, NCCL_WARNING, NOT_REGISTERED, Message
from gpudiag.log import Log
from gpudiag.model import Broken, Cause, Finding, Judged, Limits, Row, Stage, Sure
from gpudiag.probes.discovery import trace
from gpudiag.probes.host import collectives
from gpudiag.scope import gpus_in_scope

_LAST_LINES = 3

_NCCL = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"


def _here(evidence: Evidence, kind: str) -> Finding | None:
    """Return what ``host.collectives`` finds of this kind."""
    return next((found for found in collectives.judge(evidence.facts, Limits()) if found.kind == kind), None)


def _first(evidence: Evidence, message: Message) -> str | None:
    said = evidence.log.first(message)
    return None if said is None else said.line.strip()


def _warned(evidence: Evidence, *words: str) -> str | None:
    """Return the first line in which NCCL warns of one of these."""
    warnings = evidence.log.all(NCCL_WARNING)
    return next((one.line.strip() for one in warnings if any(word in one["what"].lower() for word in words)), None)


_SHARED_MEMORY = ("dev/shm", "shared memory segment", "posix_fallocate")


def _small_shared_memory(evidence: Evidence) -> Iterator[Match]:
    here, said = _here(evidence, "small_shm"), _warned(evidence, *_SHARED_MEMORY)
    failed = said or _first(evidence, NCCL_SYSTEM_ERROR)
    if here and failed:
        yield Match(
            evidence=(f"log: {failed}", here.message),
            sure=Sure.PROVED if said else Sure.LIKELY,
            figures={"room": f"{here.figures['size_mib']} MiB in this container"},
        )
    elif said:  # there is enough here, or one GPU: the log is of another machine, or others filled it
        yield Match(
            evidence=(f"log: {said}",),
            sure=Sure.PROVED if "no space left on device" in said.lower() else Sure.LIKELY,
            figures={"room": "none was left where the program ran"},
        )


def _low_memory_lock(evidence: Evidence) -> Iterator[Match]:
    here, said = _here(evidence, "low_memlock"), _warned(evidence, "ibv_", "memlock", "cannot allocate memory")
    failed = said or _first(evidence, NCCL_SYSTEM_ERROR)
    if here and failed:
        yield Match(
            evidence=(f"log: {failed}", here.message),
            sure=Sure.PROVED if said else Sure.LIKELY,
            figures={"size": here.figures["size_kib"], "device": here.figures["device"]},
        )


def _other_system_error(evidence: Evidence) -> Iterator[Match]:
    failed = _first(evidence, NCCL_SYSTEM_ERROR)
    if _warned(evidence, *_SHARED_MEMORY):
        return
    if failed and not any(_here(evidence, kind) for kind in ("small_shm", "low_memlock", "no_interface")):
        named = _warned(evidence, "call to", "failed", "error")
        nodes = evidence.facts.device_nodes
        network = () if isinstance(nodes, Unknown) else nodes.network
        yield Match(
            evidence=(
                f"log: {failed}",
                *([f"log: {named}"] if named else []),
                f"network interfaces: {' '.join(network) or 'not known'}",
            ),
            sure=Sure.POSSIBLE,
            figures={"which": "NCCL's own line names it" if named else "the log does not say which"},
        )


def _no_interface(evidence: Evidence) -> Iterator[Match]:
    here = _here(evidence, "no_interface")
    if here:
        yield Match(evidence=(here.message,), figures=here.figures)


def _iommu(evidence: Evidence) -> Iterator[Match]:
    here = _here(evidence, "iommu_translates")
    gpus = len(gpus_in_scope(evidence.facts))
    stalled = next(
        (
            f"{row.probe} gave no result with {len(row.devices)} GPUs: {crash.detail}"
            for row in evidence.rows
            if row.area == "distribution"
            and len(row.devices) > 1
            and (crash := row.crash) is not None
            and crash.cause is Cause.TIMEOUT
        ),
        None,
    )
    last = [line.strip() for line in evidence.lines if line.strip()][-_LAST_LINES:]
    ends = next((f"the log ends with: {line}" for line in last if Log((line,)).first(GPUS_EXCHANGE)), None)
    if here and (stalled or ends):
        nodes = evidence.facts.device_nodes
        of_amd = not isinstance(nodes, Unknown) and any(name.startswith("ivhd") for name in nodes.iommus)
        yield Match(
            evidence=(stalled or ends or "", here.message),
            sure=Sure.LIKELY if stalled else Sure.POSSIBLE,
            figures={"gpus": gpus, "off": "amd_iommu=off" if of_amd else "intel_iommu=off"},
        )


def _worker_without_gpu(evidence: Evidence) -> Iterator[Match]:
    facts = evidence.facts
    workers, own = collectives.training_workers(facts), collectives.own_task(facts)
    refused = evidence.program.first(NOT_REGISTERED)
    listed = evidence.trace.listed if evidence.trace else len(gpus_in_scope(facts))
    here = len(workers) > 1 and own in workers and not listed
    if not here and not refused:
        return
    seen = [
        f"TF_CONFIG: {own} of {len(workers)} workers" if len(workers) > 1 else None,
        f"GPUs that TensorFlow lists here: {listed}" if here else None,
        f"log: {refused.line.strip()}" if refused else None,
    ]
    yield Match(
        evidence=tuple(filter(None, seen)),
        sure=Sure.LIKELY if refused else Sure.POSSIBLE,
        figures={"who": f"this worker, {own} of {len(workers)}," if here else "a worker of the cluster"},
        stage=Stage.DEVICE_FILTER if here else None,
    )


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
    reading = msgspec.to_builtins(trace.read_log((), listed, None))
    return Evidence(facts, rows=(Row("discovery.trace", (), Judged(), 0.0, reading),), lines=lines)


def _distribution(cause: Cause) -> tuple[Row, ...]:
    uuids = tuple(example_gpu(index).uuid for index in range(2))
    return (Row("distribution.reduction", uuids, Broken(cause, "no result within 60 s"), 60.0),)


RULES = (
    Rule(
        id="nccl_small_shared_memory",
        stage=Stage.CONFIGURATION,
        cause="NCCL has too little room in /dev/shm for its buffers: {room}",
        why="""
        Where GPUs have no direct way to each other, NCCL exchanges data through /dev/shm. Docker and Kubernetes give a
        container 64 MiB of it; NVIDIA recommends 1 GiB and no limit on locked memory. NCCL then fails with "unhandled
        system error", and says more only with NCCL_DEBUG=WARN. One GPU alone works.
        """,
        fix=(
            "docker run --shm-size=1g --ulimit memlock=-1 ...   # or --ipc=host",
            "# Kubernetes: an emptyDir of medium: Memory, mounted at /dev/shm",
            "ls -l /dev/shm/nccl-*   # left by programs that were killed: remove them when none runs",
            "NCCL_DEBUG=WARN python program.py   # names what failed, if it does so again",
        ),
        url=_NCCL,
        find=_small_shared_memory,
        cases=(
            RuleCase("system error", _two(_UNHANDLED)),
            RuleCase("NCCL names it", _two("h:1:2 [0] shmutils.cc:62 NCCL WARN Call to posix_fallocate failed")),
            RuleCase("it was full there", _two(_NO_SPACE, _UNHANDLED, container=_ENOUGH)),
            RuleCase("one GPU here", Evidence(example_with_gpus(1), lines=(_NO_SPACE,))),
            RuleCase("enough of it", _two(_UNHANDLED, container=_ENOUGH), fires=False),
            RuleCase("no failure", _two("Epoch 1/10"), fires=False),
            RuleCase("one GPU", Evidence(example_with_gpus(1, container=_DOCKER), lines=(_UNHANDLED,)), fires=False),
        ),
    ),
    Rule(
        id="nccl_low_memory_lock",
        stage=Stage.CONFIGURATION,
        cause="NCCL may lock {size} KiB of memory, too little to register its buffers with InfiniBand ({device})",
        why="""
        InfiniBand reads and writes memory that is locked, and the limit on locked memory (ulimit -l) holds for it.
        Where the device is there and the limit is low, as in a container by default, or in a service that systemd
        started, NCCL fails with "unhandled system error". NCCL_IB_DISABLE=1 makes it use sockets: slower, and the
        proof.
        """,
        fix=(
            "docker run --ulimit memlock=-1 --shm-size=1g ...   # without a container: ulimit -l unlimited",
            "export NCCL_IB_DISABLE=1   # to confirm, or for good where InfiniBand is not to be used",
        ),
        url=_NCCL,
        find=_low_memory_lock,
        cases=(
            RuleCase("system error", _two(_UNHANDLED, container=_INFINIBAND)),
            RuleCase("NCCL names it", _two("NCCL WARN Call to ibv_reg_mr failed", container=_INFINIBAND)),
            RuleCase("no limit", _two(_UNHANDLED, container=_UNLIMITED), fires=False),
            RuleCase("no failure", _two("Epoch 1/10", container=_INFINIBAND), fires=False),
        ),
    ),
    Rule(
        id="nccl_no_interface",
        stage=Stage.CONFIGURATION,
        cause="NCCL_SOCKET_IFNAME={value!r} is none of this machine's network interfaces: {interfaces}",
        why="""
        NCCL opens a socket before any GPU exchanges data, also on a single machine. NCCL_SOCKET_IFNAME names the
        interface by its beginning (eth), or whole (=eth0), or all but some (^docker). A value that matches none, often
        copied from another cluster, ends in "no socket interface found" and "unhandled system error".
        """,
        fix=("unset NCCL_SOCKET_IFNAME", "# or one of these: {interfaces}"),
        url="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-socket-ifname",
        find=_no_interface,
        cases=(
            RuleCase("of another machine", _sockets("ib0")),
            RuleCase("one of them", _sockets("eth"), fires=False),
            RuleCase("not set", _sockets(""), fires=False),
        ),
    ),
    Rule(
        id="nccl_system_error",
        stage=Stage.CONFIGURATION,
        cause="a call of NCCL to the operating system failed: {which}",
        why="""
        "NCCL: unhandled system error" is what TensorFlow passes on of any failed call to the system: shared memory,
        locked memory, sockets, InfiniBand. The first two have room enough here. NCCL names the call itself when it is
        asked to.
        """,
        fix=(
            "NCCL_DEBUG=WARN python program.py 2>&1 | tee app.log; gpudiag check --log app.log",
            "export NCCL_IB_DISABLE=1   # is it InfiniBand?",
            "export NCCL_SOCKET_IFNAME=eth0   # is it the interface? Name the one that joins the machines",
        ),
        url=_NCCL,
        find=_other_system_error,
        cases=(
            RuleCase("nothing else is found", _two(_UNHANDLED, container=_ENOUGH)),
            RuleCase(
                "NCCL names another call",
                _two(
                    _UNHANDLED,
                    "h:1:2 [0] socket.cc:9 NCCL WARN Call to bind failed : Address in use",
                    container=_ENOUGH,
                ),
            ),
            RuleCase("little shared memory", _two(_UNHANDLED), fires=False),
            RuleCase("shared memory was full there", _two(_UNHANDLED, _NO_SPACE, container=_ENOUGH), fires=False),
            RuleCase("no failure", _two("Epoch 1/10", container=_ENOUGH), fires=False),
        ),
    ),
    Rule(
        id="iommu_between_gpus",
        stage=Stage.CONFIGURATION,
        cause="{gpus} GPUs stand still when they exchange data, and the IOMMU is on between them",
        why="""
        GPUs write directly into each other's memory over PCI Express. An IOMMU that translates addresses, or PCI access
        control (ACS), sends that traffic up to the processor, where on many machines it stalls or is corrupted:
        training stops at the first all-reduce with all GPUs at 100 %, or gives NaN. Nothing is said. GPUs that are
        joined by NVLink, or a machine that does this right, are not concerned, so the IOMMU alone is no fault.
        """,
        fix=(
            "export NCCL_P2P_DISABLE=1   # to confirm: slower, and it runs",
            "# boot with iommu=pt or {off}: GRUB_CMDLINE_LINUX in /etc/default/grub, sudo update-grub, reboot",
            "sudo lspci -vvv | grep ACSCtl  # should show SrcValid-: switch ACS off in the firmware",
        ),
        url=_NCCL + "#pci-access-control-services-acs",
        find=_iommu,
        cases=(
            RuleCase("the log ends at an all-reduce", _between(_AMD, "Epoch 1/10", _ALL_REDUCE)),
            RuleCase("a probe stood still", _between(_AMD, rows=_distribution(Cause.TIMEOUT))),
            RuleCase("a probe ended in another way", _between(_AMD, rows=_distribution(Cause.SIGNAL)), fires=False),
            RuleCase(
                "passed through",
                _between(msgspec.structs.replace(_AMD, iommu_options=("iommu=pt",)), _ALL_REDUCE),
                fires=False,
            ),
            RuleCase("the log goes on", _between(_AMD, _ALL_REDUCE, "1", "2", "3"), fires=False),
            RuleCase("no sign of a fault", _between(_AMD), fires=False),
        ),
    ),
    Rule(
        id="cluster_worker_without_gpu",
        stage=Stage.CONFIGURATION,
        cause="{who} has no GPU: where the others have, they wait for it, or compute at its pace",
        why="""
        MultiWorkerMirroredStrategy exchanges gradients after each step. A worker whose TensorFlow found no GPU falls
        back to the CPU without an error, and the cluster hangs, or is as slow as that worker, and none of them says
        why. From one machine the others cannot be seen, so the check belongs on every worker, before training. The
        worker without a GPU may log "TensorFlow device GPU:0 was not registered".
        """,
        fix=(
            "gpudiag check --require-gpus 1  # on every worker, before training",
            "# on a worker where that fails: what its report names as the cause",
        ),
        url="https://www.tensorflow.org/tutorials/distribute/multi_worker_with_keras",
        find=_worker_without_gpu,
        needs_gpu=False,
        cases=(
            RuleCase("here", _in_cluster(example())),
            RuleCase("in the log of another", _in_cluster(example_with_gpus(1), _REFUSED, listed=1)),
            RuleCase("in a log alone", Evidence(example_with_gpus(1), lines=(_REFUSED,))),
            RuleCase("it has one", _in_cluster(example_with_gpus(1), listed=1), fires=False),
            RuleCase("one worker", _in_cluster(example(), workers=1), fires=False),
            RuleCase("a parameter server", _in_cluster(example(), job="ps"), fires=False),
            RuleCase("no cluster", Evidence(example()), fires=False),
        ),
    ),
)
