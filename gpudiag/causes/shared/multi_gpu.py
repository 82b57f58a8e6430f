"""Shared by causes: several GPUs, several workers, and the connections between them."""

from __future__ import annotations

from dataclasses import dataclass

from gpudiag.cause import EveryLog, Evidence, Program, Rows
from gpudiag.fix import Action, configure, run_container
from gpudiag.knowledge.message import Message
from gpudiag.knowledge.messages import nccl
from gpudiag.knowledge.messages.collectives import NCCL_WARNING
from gpudiag.model.diagnosis import Stage
from gpudiag.model.facts import ContainerFacts, DeviceNodeFacts, Facts, Unknown
from gpudiag.model.report import Gpu
from gpudiag.model.visibility import gpus_in_scope
from gpudiag.probes.host.collectives import training_workers

NCCL = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"


INTERFACE = "NCCL_SOCKET_IFNAME"
ENOUGH_SHM = 1 << 30
"""The size that NVIDIA recommends for its TensorFlow containers; Docker's default is 64 MiB."""
ENOUGH_MEMLOCK = 1 << 30


UNLOCKED = (
    run_container("--ulimit memlock=-1", "--shm-size=1g", note="if NCCL fails in a container"),
    configure("ulimit -l unlimited", "if NCCL fails, in the shell that starts the program"),
)
"""How a limit on locked memory is raised, in a container and outside of one."""


@dataclass(frozen=True)
class SeveralGpus:
    """Several GPUs in scope whose connections are known."""

    gpus: tuple[Gpu, ...]
    container: ContainerFacts
    nodes: DeviceNodeFacts

    @classmethod
    def of(cls, evidence: Evidence) -> SeveralGpus | None:
        facts = evidence.facts
        gpus, container, nodes = gpus_in_scope(facts), facts.container, facts.device_nodes
        if len(gpus) < 2 or isinstance(container, Unknown) or isinstance(nodes, Unknown):
            return None
        return cls(gpus, container, nodes)

    @property
    def small_shm(self) -> int | None:
        """The MiB of ``/dev/shm`` in this container, if they are too few."""
        size = self.container.shm_bytes if self.container.name else None
        return size >> 20 if size is not None and size < ENOUGH_SHM else None

    @property
    def unlocked(self) -> tuple[Action, ...]:
        """How the limit on locked memory is raised: of a container when it starts, elsewhere in the shell."""
        return (UNLOCKED[0] if self.container.name else UNLOCKED[1],)

    @property
    def small_memlock(self) -> int | None:
        """The KiB of memory that may be locked, if they are too few for InfiniBand."""
        size = self.container.memlock_bytes if self.container.infiniband else None
        return size >> 10 if size is not None and size < ENOUGH_MEMLOCK else None

    @property
    def translation(self) -> str:
        """Evidence that the IOMMU translates between the GPUs; "" if it passes through, or if there is none."""
        nodes, gpus = self.nodes, {gpu.pci_bus_id for gpu in self.gpus}
        kinds = {name: kind for name, kind in nodes.iommu_groups.items() if name in gpus}
        if kinds:
            translated = [name for name, kind in kinds.items() if kind.startswith("DMA")]
            return f"group of {' '.join(translated)}: {kinds[translated[0]]}" if len(translated) > 1 else ""
        passed = {"iommu=pt", "iommu=off", "intel_iommu=off", "amd_iommu=off"} & set(nodes.iommu_options)
        options = [*nodes.iommus, *nodes.iommu_options]
        return " ".join(["/sys/class/iommu:", *options]) if nodes.iommus and not passed else ""


def interface_not_here(facts: Facts) -> str:
    """Return the value of ``NCCL_SOCKET_IFNAME`` if it names no network interface and NCCL is needed, or ""."""
    value, nodes, gpus = facts.variables.get(INTERFACE, ""), facts.device_nodes, len(gpus_in_scope(facts))
    needed = gpus and (gpus > 1 or len(training_workers(facts)) > 1)
    if not needed or isinstance(nodes, Unknown) or not nodes.network:
        return ""
    return "" if _chosen(value, nodes.network) else value


def _chosen(value: str, present: tuple[str, ...]) -> list[str]:
    """Return the interfaces that ``value`` chooses: beginnings of names, ``=`` whole names, ``^`` all except these."""
    names = [name for name in value.lstrip("^=").split(",") if name]
    whole = value.lstrip("^").startswith("=")
    return [
        interface
        for interface in present
        if any(interface == name if whole else interface.startswith(name) for name in names)
        is not value.startswith("^")
    ]


def where_nccl_fails(rows: Rows) -> Stage:
    """Return the stage at which a fault of NCCL shows: the check of the libraries, if that found it."""
    return Stage.FIRST_OP if rows.found("libraries.nccl", "failed") else Stage.CONFIGURATION


def shm_text(size_mib: int, gpus: int) -> str:
    return f"this container has {size_mib} MiB of /dev/shm for {gpus} GPUs"


def first(log: EveryLog, message: Message) -> str | None:
    said = log.first(message)
    return None if said is None else said.line.strip()


def warned(log: EveryLog, *words: str) -> str | None:
    """Return the first line with one of these warnings of NCCL."""
    warnings = log.all(NCCL_WARNING)
    return next(
        (event.line.strip() for event in warnings if any(word in event["what"].lower() for word in words)), None
    )


def is_named(program: Program) -> bool:
    """Return True if NCCL's log names the call that failed, and the table of messages has its fix."""
    return any(message.fix and not message.symptom for message in nccl.FAMILY.messages if program.first(message))


SHARED_MEMORY = ("dev/shm", "shared memory segment", "posix_fallocate")
