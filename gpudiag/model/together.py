"""The records of a fleet that trains together: what each node is told and saw of the others, and who is to blame."""

from __future__ import annotations

from enum import Enum

from gpudiag.fix import Action
from gpudiag.record import Record


class Place(Record):
    """Where a node listens: an entry of ``TF_CONFIG``."""

    node: str
    address: str
    port: int

    @property
    def target(self) -> str:
        """Its words in ``TF_CONFIG``, such as ``10.0.0.2:22220``."""
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"


class Task(Record):
    """What each node of a run is told."""

    run: str
    places: tuple[Place, ...]
    """The nodes, in the order of the tasks of ``TF_CONFIG``."""
    wait_s: float
    """How long a node waits until it has heard of all others."""
    times: int = 3
    """How often each vector is added."""


class Stage(str, Enum):
    """How far a node came."""

    PORT = "port"
    """It could not listen on its port."""
    ALONE = "alone"
    """It trained alone, and did not end that."""
    MEETING = "meeting"
    """It waited for the others, before TensorFlow was started."""
    CLUSTER = "cluster"
    """TensorFlow connected to the others."""
    SUMS = "sums"
    """It added with the others."""
    DONE = "done"


NOT_TRIED = "not tried yet"
"""The answer of a node to which no connection was tried."""


class Peer(Record):
    """What a node saw of another one before TensorFlow was started."""

    node: str
    answer: str
    """"" if it answered; else what the last connection ended with, such as ``Connection refused``."""
    heard: bool
    """Whether anything was heard of it: by its own connection, or from a third node."""


class Interface(Record):
    """A network interface of a node."""

    name: str
    addresses: tuple[str, ...]
    speed_mbit: int | None
    """As the kernel says; None for a virtual one."""


class Sum(Record):
    """An all-reduce: each replica adds a vector that differs from those of the others."""

    way: str
    """``RING`` (TensorFlow's own, by gRPC) or ``NCCL``."""
    bytes: int
    """The size of a replica's vector."""
    seconds: float
    """The shortest of the times."""
    wrong: int
    """Elements that differ from the sum that is known beforehand, on this node's replicas."""
    devices: tuple[str, ...] = ()
    """The devices that hold the sums, such as ``GPU:0``."""
    own_wrong: int = 0
    """Elements of this node's own vectors that were wrong before they were added."""


class Witness(Record):
    """What one node saw."""

    node: str
    index: int
    """Its task in ``TF_CONFIG``."""
    stage: Stage
    fault: str = ""
    """What is wrong with this node itself, such as that its port is taken; "" if nothing is."""
    kind: str = ""
    """The kind of the fault, such as ``port_taken``."""
    peers: tuple[Peer, ...] = ()
    """The nodes that did not answer it, or of which it heard a fault."""
    told: dict[str, str] = {}
    """Faults of other nodes, as they said themselves."""
    unlike: dict[str, int] = {}
    """The GPUs of each node, if they are not as many everywhere: TensorFlow asks for as many on each."""
    models: tuple[str, ...] = ()
    """The models of the GPUs that TensorFlow lists."""
    tensorflow: str = ""
    variables: dict[str, str] = {}
    """What decides over addresses and interfaces, such as ``NCCL_SOCKET_IFNAME`` and ``http_proxy``."""
    proxy: str = ""
    """The variable by which gRPC takes a proxy to another node; "" if it connects to all itself."""
    interfaces: tuple[Interface, ...] = ()
    route: str = ""
    """The address and interface of this node that its connections to the others begin at."""
    alone: tuple[Sum, ...] = ()
    sums: tuple[Sum, ...] = ()
    begun: int = 0
    """How many exchanges this node came to."""
    ready: int = 0
    """In how many of them its own devices had computed what it adds."""
    ended: int = 0
    planned: int = 0
    error: str = ""
    """What TensorFlow raised, or how its process ended."""
    accused: tuple[str, ...] = ()
    """Nodes that the error names."""
    by_limit: bool = False
    """True if TensorFlow hung and was ended by this node's own limit: what others say of it later is a consequence."""
    log: tuple[str, ...] = ()
    """Lines of NCCL: the interfaces that it takes, and what it warns of."""
    met_at: tuple[float, float] = (0.0, 0.0)
    """When it began to meet the others, and when it gave that up or went on, by its own clock: seconds since 1970."""
    waited_s: float = 0.0
    """How long it waited in the stage at which it stands."""


class Blame(Record):
    """A node, or a connection, that kept the fleet from training together."""

    nodes: tuple[str, ...]
    """One node; two for a connection."""
    why: str
    """What is wrong with them: a sentence that follows their names."""
    evidence: tuple[str, ...]
    """What each node says, one line each."""
    fix: tuple[Action, ...] = ()


class Together(Record):
    """Whether the nodes of a fleet train together."""

    verdict: str
    """PASS, FAIL or NOT VERIFIED."""
    text: str
    places: tuple[Place, ...]
    blames: tuple[Blame, ...] = ()
    sums: tuple[Sum, ...] = ()
    """Of each way and size the slowest node's."""
    alone: tuple[Sum, ...] = ()
    """The same on one node alone: the slowest node's."""
    notes: tuple[str, ...] = ()
