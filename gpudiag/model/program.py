"""What a program did with its GPUs, as `gpudiag trace` noted it. Records only; :mod:`gpudiag.tracing` gathers them."""

from __future__ import annotations

from gpudiag.fix import Action
from gpudiag.record import Record

TOOK_EFFECT, OTHER_EFFECT, NOT_CHECKED, NOT_REACHED = "took effect", "other effect", "not checked", "not reached"
WITHOUT_EFFECT = ("overridden", "too late", "misspelt", "ignored", "refused")
"""Those of a setting that somebody meant and that does not hold."""
REPLACED = "replaced"
FATES = (TOOK_EFFECT, OTHER_EFFECT, *WITHOUT_EFFECT, REPLACED, NOT_CHECKED, NOT_REACHED)
"""What may become of a setting.

``took effect``: what it asks for was observed; ``other effect``: it was read, and what was observed is something else;
``replaced``: the program itself set it again before it was read; ``not checked``: nothing that was observed shows it.
"""

SMALL_BYTES = 1 << 14
"""A copy of so many bytes at most takes as long as one of a single number."""


def place(line: str) -> str:
    """Return ``train.py:12`` for a line with its whole path, and "the environment" for none."""
    file, _, number = line.rpartition(":")
    return f"{file.rpartition('/')[2]}:{number}" if file else "the environment"


class Setting(Record):
    """A GPU option that the program or its environment set."""

    what: str
    """Such as ``memory_growth`` or ``CUDA_VISIBLE_DEVICES``."""
    value: str
    line: str
    """``file:line`` of the program; "" for the environment that it was started in."""
    fate: str
    """One of :data:`FATES`."""
    why: str = ""
    """What was observed, or what keeps the setting from having its effect."""
    instead: Action | None = None
    """What to do in its place; None if nothing has to be changed."""
    process: int = 0
    """Its process id."""
    by_import: str = ""
    """The line of the program whose import ran the line that set it; "" if no import did."""


class GpuUse(Record):
    """What a process that uses TensorFlow did with one GPU of the machine."""

    gpu: int
    """NVML's index of it."""
    process: int
    devices: tuple[str, ...] = ()
    """TensorFlow's devices on it."""
    operations: int = 0
    """That ran there."""
    peak_bytes: int = 0
    unused: str = ""
    """Why nothing ran there; "" if something did."""
    line: str = ""
    """The line of the program that hides it from TensorFlow; "" for its environment, or if nothing hides it."""
    is_hidden: bool = False
    """Something that the program or its environment set keeps it from TensorFlow."""


class Placed(Record):
    """Operations of one type on one device."""

    op: str
    device: str
    count: int
    """Of eager operations how often they ran; of a function's how many of its graph there are."""
    asked: str = ""
    """The device that the program asked for, if it did."""
    line: str = ""
    """Where, for operations on the CPU that a GPU could have run."""
    function: str = ""
    """The function that they belong to; "": they ran eagerly."""
    why: str = ""
    """Of an operation on the CPU: ``asked`` (a GPU was asked for), ``scope`` (the CPU was asked for),
    ``variable`` (it follows a variable or an iterator there), ``none`` (nothing was asked for), ``type`` (no kernel for
    the GPU has this type) or ``cpu only`` (there is no kernel for the GPU at all). ``host``: TensorFlow names a GPU,
    and its kernel for this type keeps the tensors in the computer's memory, as those for int32 do."""
    process: int = 0
    largest_bytes: int = 0
    """The largest tensor of an operation; 0 where it was not measured."""
    types: str = ""
    """The types of its tensors, if ``why`` is ``type``: such as ``int64``."""
    direct: bool = True
    """False: a library, such as Keras, ran it."""

    @property
    def could_use_gpu(self) -> bool:
        """True if it ran on the CPU and TensorFlow has a kernel for GPUs of its type."""
        return self.why in ("asked", "scope", "variable", "none") and "GPU" not in self.device


class Scope(Record):
    """A ``with tf.device`` that the program entered."""

    device: str
    """As it is written there."""
    line: str
    process: int = 0
    variables: int = 0
    """How many variables were made on the CPU in one for the CPU."""


class Function(Record):
    """A ``tf.function``."""

    name: str
    """Of its Python function."""
    line: str
    """The line of the program that made TensorFlow trace it."""
    traced: int
    """How often its Python was run to make a graph."""
    runs: int = 0
    devices: dict[str, int] = {}
    """How many operations of its graphs were placed on each device, after TensorFlow had optimized them."""
    copies: int = 0
    """Tensors that each run copies between the host and a GPU."""
    compiled: bool = False
    """XLA compiles it as a whole."""
    clusters: int | None = None
    """Parts of it that XLA compiles; None: TensorFlow was not asked to form any."""
    outside: dict[str, bool] = {}
    """Types of its operations that are in no cluster, if it was asked: whether XLA has a kernel for them."""
    process: int = 0
    between_gpus: int = 0
    """Tensors that each run copies from one GPU to another."""
    scopes: dict[str, tuple[str, ...]] = {}
    """The GPUs in whose ``tf.device`` scope it was called, each with the devices on which its operations then ran."""
    types: tuple[str, ...] = ()
    """The types of its operations on GPUs."""


class Copies(Record):
    """Tensors that were copied from or to a GPU, by one line or function."""

    direction: str
    """``to host``, ``to device`` or ``between GPUs``."""
    line: str
    count: int
    bytes: int
    """Without those whose size is not known."""
    function: str = ""
    """The function that they belong to; "": single tensors."""
    unsized: int = 0
    """How many of them have a size that is not known before the function runs."""
    direct: bool = True
    """False: a library, such as Keras, made them."""
    process: int = 0


class Waited(Record):
    """What the program waited for ``tf.data`` in a loop of Python."""

    line: str
    times: int
    seconds: float
    process: int = 0


class Device(Record):
    """A device that TensorFlow made in a process."""

    name: str
    limit_bytes: int
    gpu: str = ""
    """Which GPU of the machine it is, by NVML's index, or as the process's mask numbers it; "" if that is not known."""
    peak_bytes: int = 0
    samples: tuple[tuple[float, int], ...] = ()
    """Seconds since the process began, and bytes that TensorFlow's allocator had given to tensors."""
    pci: str = ""
    """The PCI bus id of its GPU, as the CUDA driver shows it to the process; "" if that is not known."""
    total_bytes: int = 0
    """What its GPU has in all; 0 if that is not known."""
    free_bytes: int | None = None
    """What its GPU had free when the device was made; None if that is not known."""


class Booked(Record):
    """What NVML books on a GPU of the machine while the program runs."""

    index: int
    """NVML's index of the GPU."""
    total_bytes: int
    before_bytes: int
    """In use when the program began."""
    used_bytes: int
    """The most that was in use."""
    processes: tuple[tuple[int, int], ...] = ()
    """Process ids, each with the most that was booked on it; empty in a container: NVML counts pids of the host."""
    idle_s: float | None = None
    """Seconds in which it computed nothing, after TensorFlow had made its devices; None: not known, as of a simulated
    GPU."""
    watched_s: float = 0.0
    """Of so many seconds."""
    pci: str = ""
    """Its PCI bus id; "" if NVML gave none."""


class Holder(Record):
    """Tensors that Python held when memory ran out."""

    what: str
    device: str
    bytes: int
    number: int


class OutOfMemory(Record):
    """A ``ResourceExhaustedError``."""

    message: str
    line: str
    device: str
    asked_bytes: int
    """0 if the message does not say it."""
    used_bytes: int
    limit_bytes: int
    holders: tuple[Holder, ...] = ()
    """The largest first."""
    process: int = 0


class NotCompiled(Record):
    """A function that XLA was to compile as a whole, and could not."""

    function: str
    line: str
    """The line that called it."""
    device: str
    """XLA's own, such as ``XLA_GPU_JIT``."""
    operations: tuple[str, ...]
    """The types of operation that XLA does not have."""
    process: int = 0


class Replicas(Record):
    """A strategy of ``tf.distribute``."""

    strategy: str
    line: str
    devices: tuple[str, ...]
    made: tuple[str, ...]
    """The devices that TensorFlow has."""
    process: int = 0
    runs: int | None = None
    """How often it was given something to run on its replicas; one that is traced counts once. None: not known."""
    same: tuple[tuple[str, str, str], ...] = ()
    """Lines that gave all its replicas the same tensors, and nothing else: the line, the line of the program that ran
    it, and the shape of one of the tensors."""


class Peer(Record):
    """Another task of a cluster."""

    task: str
    """Such as ``worker 1``."""
    address: str
    answer: str | None = None
    """What connecting to it ended with, such as ``Connection refused``; "" if it accepts connections, None: not
    tried."""


class Cluster(Record):
    """A cluster that a process of the program joins."""

    task: str
    """The process's own."""
    line: str
    at_s: float
    """When it began to join, in seconds after the program was started."""
    joined: bool
    """False: TensorFlow still waits for the other tasks, or gave up."""
    peers: tuple[Peer, ...] = ()
    process: int = 0
    address: str = ""
    """The process's own."""

    @property
    def silent(self) -> tuple[Peer, ...]:
        """Those that do not accept connections."""
        return tuple(peer for peer in self.peers if peer.answer)


class Process(Record):
    """A Python process of the program."""

    pid: int
    parent: int
    how: str
    """``started`` or ``forked``."""
    command: tuple[str, ...]
    python: str
    began_s: float
    """Seconds after the program was started."""
    tensorflow: str = ""
    """Its version; "": it was not imported."""
    forked_when: str = ""
    """Of a forked one: how far TensorFlow was in its parent, such as ``initialised`` or ``listed``."""
    used_after_fork: str = ""
    """The line that used TensorFlow after such a fork; "" if none did."""
    made_s: float = 0.0
    """When TensorFlow had made its devices, in seconds after the program was started; 0: it made none."""
    not_made: str = ""
    """The error with which TensorFlow could not make its devices."""
    initialised_at: str = ""
    """The line that made TensorFlow create its devices."""
    mask: str | None = None
    """``CUDA_VISIBLE_DEVICES`` when TensorFlow made its devices, or when the process began."""
    rank: str = ""
    """Its number among the processes of a launcher, such as ``LOCAL_RANK=1``, or its task, ``TF_CONFIG: worker 1``."""
    devices: tuple[Device, ...] = ()
    operations: int = 0
    """Eager operations and functions that ran."""
    last_operation: str = ""
    last_s: float = 0.0
    """When it ended, in seconds after the program was started."""
    seen_s: float = 0.0
    """When it was last seen, by an operation, by something else that was noted, or at its end."""
    errors: tuple[str, ...] = ()
    """What TensorFlow raised."""
    missing: tuple[str, ...] = ()
    """Internal names that this TensorFlow lacks, and what cannot be said because of it; faults of the watcher."""
    lost: int = 0
    """Notes for which there was no room."""
    keras_backend: str = ""
    """With what Keras computes, if that is not TensorFlow: such as ``torch``."""
    started_at: str = ""
    """The line that started it, of a process that is watched, too; "" if that is not known."""

    @property
    def gpus(self) -> tuple[Device, ...]:
        """Its GPU devices."""
        return tuple(device for device in self.devices if device.name.startswith("GPU"))


class ProgramTrace(Record):
    """What a program did with its GPUs."""

    command: tuple[str, ...]
    ended: str
    """Such as ``status 0``, ``signal SIGKILL`` or ``still running after 60 s; ended by gpudiag``."""
    seconds: float
    processes: tuple[Process, ...] = ()
    settings: tuple[Setting, ...] = ()
    placed: tuple[Placed, ...] = ()
    functions: tuple[Function, ...] = ()
    out_of_memory: tuple[OutOfMemory, ...] = ()
    replicas: tuple[Replicas, ...] = ()
    not_compiled: tuple[NotCompiled, ...] = ()
    copies: tuple[Copies, ...] = ()
    waited: tuple[Waited, ...] = ()
    clusters: tuple[Cluster, ...] = ()
    booked: tuple[Booked, ...] = ()
    """Empty if NVML gave nothing."""
    scopes: tuple[Scope, ...] = ()
    gpus: tuple[GpuUse, ...] = ()
    """Of each GPU of the machine, by each process in which TensorFlow listed or made devices."""

    @property
    def with_tensorflow(self) -> tuple[Process, ...]:
        return tuple(process for process in self.processes if process.tensorflow)

    @property
    def has_gpu(self) -> bool:
        """True if TensorFlow made a GPU device in one of its processes."""
        return any(process.gpus for process in self.processes)

    def operations(self, process: Process) -> dict[str, int]:
        """Return how many operations of a process ran on each device: of eager ones each run, of functions each node.

        Nodes count as often as their function ran; operations without a device are left out.
        """
        counts: dict[str, int] = {}
        for placed in self.placed:
            if placed.process == process.pid and not placed.function and placed.device:
                device = "host memory" if placed.why == "host" else placed.device
                counts[device] = counts.get(device, 0) + placed.count
        for function in self.functions:
            if function.process == process.pid:
                for device, nodes in function.devices.items():
                    counts[device] = counts.get(device, 0) + nodes * max(function.runs, 1)
        return counts

    def asked(self, process: Process) -> set[str]:
        """Return the devices for which the operations and strategies of a process asked."""
        by_strategies = {
            name for replica in self.replicas if replica.process == process.pid for name in replica.devices
        }
        return by_strategies | {placed.asked for placed in self.placed if placed.process == process.pid}
