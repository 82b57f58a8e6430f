"""What a program did with its GPUs, as `gpudiag trace` noted it. Records only; :mod:`gpudiag.tracing` gathers them."""

from __future__ import annotations

from enum import Enum

from gpudiag.fix import Action
from gpudiag.record import Record


class SettingFate(str, Enum):
    """What became of a setting; those that were intended and have no effect are in :data:`WITHOUT_EFFECT`."""

    TOO_LATE = "too late"
    IGNORED = "ignored"
    OVERRIDDEN = "overridden"
    OTHER_EFFECT = "other effect"
    """It was read, but another effect was observed."""
    MISSPELT = "misspelt"
    REFUSED = "refused"
    TOOK_EFFECT = "took effect"
    """Its effect was observed."""
    REPLACED = "replaced"
    """The program itself set it again before it was read."""
    NOT_CHECKED = "not checked"
    """No observation shows its effect."""
    NOT_REACHED = "not reached"


WITHOUT_EFFECT = (
    SettingFate.OVERRIDDEN,
    SettingFate.TOO_LATE,
    SettingFate.MISSPELT,
    SettingFate.IGNORED,
    SettingFate.REFUSED,
)

SMALL_BYTES = 1 << 14
"""The size in bytes up to which a copy takes as long as a copy of a single number."""


def place(line: str) -> str:
    """Return ``train.py:12`` for a line with its whole path, and "the environment" for none."""
    file, _, number = line.rpartition(":")
    return f"{file.rpartition('/')[2]}:{number}" if file else "the environment"


class Setting(Record):
    """A GPU option that the program or its environment set."""

    what: str
    """The name of the setting, such as ``memory_growth`` or ``CUDA_VISIBLE_DEVICES``."""
    value: str
    line: str
    """``file:line`` of the program; "" if the environment in which it was started sets it."""
    fate: SettingFate
    why: str = ""
    """What was observed, or the reason why the setting has no effect."""
    instead: Action | None = None
    """The action to take; None if nothing has to be changed."""
    process: int = 0
    """The id of the process."""
    by_import: str = ""
    """The line of the program whose import ran the line that set it; "" if no import did."""


class GpuUse(Record):
    """What a process that uses TensorFlow did with one GPU of the machine."""

    gpu: int
    """NVML's index of the GPU."""
    process: int
    devices: tuple[str, ...] = ()
    """TensorFlow's devices on the GPU."""
    operations: int = 0
    """The number of operations that ran on the GPU."""
    peak_bytes: int = 0
    unused: str = ""
    """The reason why nothing ran on the GPU; "" if something did."""
    line: str = ""
    """The line of the program that hides the GPU from TensorFlow; "" if its environment does, or if nothing hides
    it."""
    is_hidden: bool = False
    """True if the program or its environment hides the GPU from TensorFlow."""


class Placed(Record):
    """Operations of one type on one device."""

    op: str
    device: str
    count: int
    """For eager operations, how often they ran; for a function's, how many its graph has."""
    asked: str = ""
    """The device that the program asked for; "" if it asked for none."""
    line: str = ""
    """The line of the program, for operations on the CPU that a GPU could have run."""
    function: str = ""
    """The function that the operations belong to; "" if they ran eagerly."""
    why: str = ""
    """Why an operation is on the CPU: ``asked`` (a GPU was asked for), ``scope`` (the CPU was asked for), ``variable``
    (it follows a variable or an iterator there), ``none`` (nothing was asked for), ``strategy`` (TensorFlow's own code
    of a strategy asked for the CPU), ``type`` (no kernel for the GPU has this type) or ``cpu only`` (there is no kernel
    for the GPU at all). ``host``: TensorFlow names a GPU, and its kernel for this type keeps the tensors in the
    computer's memory, as those for int32 do."""
    process: int = 0
    largest_bytes: int = 0
    """The size of the operation's largest tensor; 0 where it was not measured."""
    types: str = ""
    """The types of its tensors, if ``why`` is ``type``: such as ``int64``."""
    direct: bool = True
    """False if a library, such as Keras, ran it."""

    @property
    def could_use_gpu(self) -> bool:
        """True if it ran on the CPU although TensorFlow has a GPU kernel for its type."""
        return self.why in ("asked", "scope", "variable", "none") and "GPU" not in self.device


class DeviceBlock(Record):
    """A ``with tf.device`` block that the program entered."""

    device: str
    """The device as the program writes it."""
    line: str
    process: int = 0
    variables: int = 0
    """The number of variables that were made in this scope; of a scope for the CPU, those on the CPU."""


class Function(Record):
    """A ``tf.function``, as called from one line."""

    name: str
    """The name of the Python function."""
    line: str
    """The line of the program that called it; if none ran, the line that made TensorFlow trace it."""
    traced: int
    """How often the Python function was run to make a graph."""
    runs: int = 0
    devices: dict[str, int] = {}
    """The number of operations of its graphs on each device, after TensorFlow had optimized the graphs; the largest if
    it varies."""
    copies: int = 0
    """Tensors that each run copies between the host and a GPU; the least if it varies."""
    compiled: bool = False
    """True if XLA compiles the function as a whole."""
    clusters: int | None = None
    """The number of parts that XLA compiles; None if TensorFlow was not asked to form any."""
    outside: dict[str, bool] = {}
    """Types of operations outside XLA's clusters, if clusters were requested, each with whether XLA has a kernel for
    it."""
    process: int = 0
    between_gpus: int = 0
    """The number of tensors that each run copies from one GPU to another."""
    scopes: dict[str, tuple[str, ...]] = {}
    """The GPUs in whose ``tf.device`` scope the function was called, each with the devices that ran its operations."""
    types: tuple[str, ...] = ()
    """The types of its operations on GPUs."""
    cpu_variables: int = 0
    """The number of variables on the CPU that it uses."""
    ran: dict[str, int] = {}
    """The number of operations that ran on each device, of all its runs whose graphs are known."""
    unknown_runs: int = 0
    """The number of runs of graphs of which it is not known what they hold."""
    varies: bool = False
    """True if it has several graphs with different numbers of operations or copies."""
    has_branches: bool = False
    """True if a graph of it has loops or branches: what is in them is counted as if it ran once."""


class Copies(Record):
    """Tensors that one line or function copied from or to a GPU."""

    direction: str
    """``to host``, ``to device`` or ``between GPUs``."""
    line: str
    count: int
    bytes: int
    """The total size, without copies whose size is not known."""
    function: str = ""
    """The function that the copies belong to; "" for single tensors."""
    unsized: int = 0
    """The number of copies whose size is not known before the function runs."""
    direct: bool = True
    """False if a library, such as Keras, made the copies."""
    has_branches: bool = False
    """True if the function has loops or branches: the copies in them are counted as if these ran once."""
    process: int = 0


class Waited(Record):
    """The time that the program waited for ``tf.data`` in a Python loop."""

    line: str
    times: int
    seconds: float
    process: int = 0


class MadeDevice(Record):
    """A device that TensorFlow made in a process."""

    name: str
    limit_bytes: int
    gpu: str = ""
    """The GPU of the device, by NVML's index or by the number in the process's mask; "" if it is not known."""
    peak_bytes: int = 0
    samples: tuple[tuple[float, int], ...] = ()
    """Samples: seconds since the process began, and bytes that TensorFlow's allocator had given to tensors."""
    pci: str = ""
    """The PCI bus id of its GPU, as the CUDA driver shows it to the process; "" if that is not known."""
    total_bytes: int = 0
    """The total memory of the GPU; 0 if that is not known."""
    free_bytes: int | None = None
    """The free memory of the GPU when the device was made; None if that is not known."""


class Booked(Record):
    """The memory in use that NVML reports for a GPU while the program runs."""

    index: int
    """NVML's index of the GPU."""
    total_bytes: int
    before_bytes: int
    """Bytes in use when the program began."""
    used_bytes: int
    """The highest number of bytes in use."""
    processes: tuple[tuple[int, int], ...] = ()
    """Process ids, each with the highest number of bytes that NVML reports for it; empty in a container: NVML counts
    pids of the host."""
    idle_s: float | None = None
    """Seconds in which the GPU was idle after TensorFlow had made its devices; None if not known, as on a simulated
    GPU."""
    watched_s: float = 0.0
    """The seconds of observation to which ``idle_s`` refers."""
    pci: str = ""
    """The PCI bus id of the GPU; "" if NVML gave none."""


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
    """The size of the failed allocation; 0 if the message does not contain it."""
    used_bytes: int
    limit_bytes: int
    holders: tuple[Holder, ...] = ()
    """The holders of memory, the largest first."""
    process: int = 0


class NotCompiled(Record):
    """A function that XLA was asked to compile as a whole but could not."""

    function: str
    line: str
    """The line that called the function."""
    device: str
    """XLA's name of the device, such as ``XLA_GPU_JIT``."""
    operations: tuple[str, ...]
    """The operation types that XLA does not support."""
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
    """How often the strategy ran something on its replicas; a traced call counts once. None: not known."""
    same: tuple[tuple[str, str, str], ...] = ()
    """Lines that only ever gave all replicas identical tensors: the line, the line of the program that ran it, and the
    shape of one tensor."""
    is_held: bool = True
    """False if the program let go of the strategy before the first function ran: it asked it something, such as the
    number of replicas."""
    variables: int | None = None
    """How many variables, at least, were made in its scope, each copy counted; None: not known."""
    outside: tuple[str, ...] = ()
    """The lines of the program, the first ones, that made variables outside of the scope of every strategy."""


class ClusterTask(Record):
    """Another task of a cluster."""

    task: str
    """The task, such as ``worker 1``."""
    address: str
    answer: str | None = None
    """The error of connecting to the task, such as ``Connection refused``; "" if it accepts connections, None if not
    tried."""


class Cluster(Record):
    """A cluster that a process of the program joins."""

    task: str
    """The task of the process itself."""
    line: str
    at_s: float
    """The time at which the process began to join, in seconds after the program was started."""
    joined: bool
    """False if TensorFlow still waits for the other tasks, or gave up."""
    peers: tuple[ClusterTask, ...] = ()
    process: int = 0
    address: str = ""
    """The address of the process itself."""

    @property
    def silent(self) -> tuple[ClusterTask, ...]:
        """The tasks that do not accept connections."""
        return tuple(peer for peer in self.peers if peer.answer)


class Process(Record):
    """A Python process of the program."""

    pid: int
    parent: int
    how: str
    """How the process was created: ``started`` or ``forked``."""
    command: tuple[str, ...]
    python: str
    began_s: float
    """The start of the process, in seconds after the program was started."""
    tensorflow: str = ""
    """The version of TensorFlow; "" if it was not imported."""
    forked_when: str = ""
    """For a forked process: the state of TensorFlow in its parent, such as ``initialised`` or ``listed``."""
    used_after_fork: str = ""
    """The line that used TensorFlow after such a fork; "" if none did."""
    made_s: float = 0.0
    """The time at which TensorFlow had made its devices, in seconds after the program was started; 0 if it made
    none."""
    not_made: str = ""
    """The error with which TensorFlow could not make its devices."""
    initialised_at: str = ""
    """The line that made TensorFlow create its devices."""
    mask: str | None = None
    """``CUDA_VISIBLE_DEVICES`` when TensorFlow made its devices, or when the process began."""
    rank: str = ""
    """Its rank in a launcher, such as ``LOCAL_RANK=1``, or its task, such as ``TF_CONFIG: worker 1``."""
    devices: tuple[MadeDevice, ...] = ()
    operations: int = 0
    """The number of eager operations and functions that ran."""
    last_operation: str = ""
    last_s: float = 0.0
    """The end of the process, in seconds after the program was started."""
    seen_s: float = 0.0
    """The time of the last sign of the process: an operation, another note, or its end."""
    errors: tuple[str, ...] = ()
    """The errors that TensorFlow raised."""
    missing: tuple[str, ...] = ()
    """Internal names that this TensorFlow lacks, with what is unknown because of it, and faults of the tracer
    itself."""
    lost: int = 0
    """The number of notes that were dropped for lack of room."""
    keras_backend: str = ""
    """The backend of Keras, if it is not TensorFlow: such as ``torch``."""
    keras_backend_from: str = ""
    """The variable or the file that names it; "" if it is not known."""
    keras_device: str = ""
    """On which device that backend computed, as it says itself at the end, such as ``cpu``; "" if not known."""
    started_at: str = ""
    """The line that started the process, if a traced process did; "" if it is not known."""

    @property
    def gpus(self) -> tuple[MadeDevice, ...]:
        """The GPU devices of the process."""
        return tuple(device for device in self.devices if device.name.startswith("GPU"))


class FailedLine(Record):
    """A line of the program at which it ended with an exception, as ``gpudiag lint`` explains the line."""

    line: str
    text: str
    """The statement."""
    rule: str
    message: str
    fix: tuple[Action, ...] = ()


class ProgramTrace(Record):
    """What a program did with its GPUs."""

    command: tuple[str, ...]
    ended: str
    """How the program ended, such as ``status 0``, ``signal SIGKILL`` or ``still running after 60 s; ended by
    gpudiag``."""
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
    """The memory use by NVML; empty if NVML reported nothing."""
    scopes: tuple[DeviceBlock, ...] = ()
    gpus: tuple[GpuUse, ...] = ()
    """The use of each GPU of the machine by each process in which TensorFlow listed or made devices."""
    raised: tuple[str, ...] = ()
    """The traceback of the exception that ended the program, in lines; empty if none did, or it is not known."""
    failed_lines: tuple[FailedLine, ...] = ()
    """The lines of the program in that traceback that ``gpudiag lint`` explains, the innermost first."""

    @property
    def with_tensorflow(self) -> tuple[Process, ...]:
        return tuple(process for process in self.processes if process.tensorflow)

    @property
    def has_gpu(self) -> bool:
        """True if TensorFlow made a GPU device in one of its processes."""
        return any(process.gpus for process in self.processes)

    def uses(self, process: Process, device: MadeDevice) -> bool:
        """Return whether a process ran an operation on one of its devices, or allocated memory there."""
        return bool(device.peak_bytes or self.operations(process).get(device.name))

    def operations(self, process: Process) -> dict[str, int]:
        """Return how many operations of a process ran on each device.

        An eager operation counts once per run, a node of a function as often as the function ran. Operations without a
        device are left out.
        """
        counts: dict[str, int] = {}
        for placed in self.placed:
            if placed.process == process.pid and not placed.function and placed.device:
                device = "host memory" if placed.why == "host" else placed.device
                counts[device] = counts.get(device, 0) + placed.count
        for function in self.functions:
            if function.process == process.pid:
                ran = function.ran or {
                    device: nodes * max(function.runs, 1) for device, nodes in function.devices.items()
                }
                for device, number in ran.items():
                    counts[device] = counts.get(device, 0) + number
        return counts

    def asked(self, process: Process) -> set[str]:
        """Return the devices for which the operations and strategies of a process asked."""
        by_strategies = {
            name
            for replica in self.replicas
            if replica.process == process.pid and replica.is_held
            for name in replica.devices
        }
        return by_strategies | {placed.asked for placed in self.placed if placed.process == process.pid}
