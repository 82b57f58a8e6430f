"""The contract of a probe: one scenario in one file, ``gpudiag/probes/<area>/<name>.py``.

A probe file has a docstring (its first line is the summary; below it the headings of :data:`HEADINGS`), a
:class:`Probe` called ``PROBE``, a class ``Fault`` of what it can find, a class ``Reading`` of what it measures,
``measure(ctx)`` and ``judge(reading)`` or ``judge(reading, facts)``. Its examples are in ``tests/provocations``.

``measure`` runs in a child process. It may crash, hang or print, and it judges nothing. ``judge`` is pure and runs in
the parent, also on a report that was saved years ago.

What is the same for every probe is done here: a probe of GPUs calls ``ctx.list_gpus()`` if it may list them, and is
judged only if TensorFlow listed all that it was given; :meth:`Kernel.verified_on` judges a kernel; memory that
another process changes is noticed by ``ctx.watch``; an error of the GPU or its libraries that no ``ctx.attempt``
expects ends the measurement, and is a finding; a figure whose name ends in ``bytes`` is shown in MiB.

A probe that needs a second process has a function ``peer(ctx)``: it runs in another child, at the same time, on
the same GPUs, in the same environment and under the same deadline. The two talk through ``ctx.peer``; what ``peer``
returns is ignored. If it raises or dies while ``measure`` runs, the probe is broken; if ``measure`` ends first, it is
killed.

A row of the host measures nothing, because the facts were gathered already: it has ``figure(facts)``, and shows the
causes that name it (:mod:`gpudiag.run.views`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol, TypeVar

import msgspec

from gpudiag import fix
from gpudiag.errors import Disturbed
from gpudiag.fix import Action, fill_in
from gpudiag.knowledge.placement import Placement
from gpudiag.knowledge.variables import OVER_MEMORY
from gpudiag.model.facts import Facts, GpuState
from gpudiag.model.health import GpuHealth
from gpudiag.model.reading import AnyReading
from gpudiag.model.report import Broken, Figure, Finding, Gap, Gpu, Limit, NoReading, Severity, Timeline
from gpudiag.record import Record
from gpudiag.text import counted

Answer = TypeVar("Answer", bound=Record)

HEADINGS = ("What it does", "Why it matters", "What to do")

MIB = 1 << 20
SLACK_BYTES = 64 * MIB
"""Device memory that a process takes without asking for it: streams, and kernel code that CUDA loads at first use."""

SEE_THE_CAUSE: tuple[Action, ...] = ()
"""The advice of findings for which the diagnosis knows more than the probe: the cause in the report has the fix."""


class Scope(str, Enum):
    """The devices that a probe runs on, which decide how many rows it gives."""

    HOST = "host"
    """Once, without a GPU: host facts, or TensorFlow on the CPU."""
    EACH_GPU = "each GPU"
    """Once for every GPU in scope, each child seeing only its own."""
    ALL_GPUS = "all GPUs"
    """Once, with every GPU in scope visible."""


MOST_SAMPLED = 8
"""The most GPUs that a ``sampled`` probe runs on: more than most machines have."""


CONTEXT_BYTES = 512 * MIB
"""Device memory that a CUDA context of TensorFlow takes before the first tensor (A100, H100: 400 to 500 MiB)."""
MEMORY_LEFT = 0.1
"""The part of a GPU's free memory that a probe of level stress leaves to the libraries and to others."""
MEMORY_LEFT_TO_DISPLAY = 0.3
"""The part that it leaves where a display is on: a desktop that gets no memory freezes or ends."""


class Needs(Record):
    """The requirements of a probe; if one is not met the row is ``Skipped`` with that reason."""

    gpus: int = 0
    """How many GPUs one child must see."""
    free_bytes: int = 0
    """Memory that must be free on each of them, besides the CUDA contexts of its processes."""
    known_memory: bool = False
    """True: NVML must report the memory of each GPU. NVML reports none for a GPU that shares the host's memory."""
    real_gpus: bool = False
    """True if simulated GPUs cannot do what the probe measures."""
    tensorflow: bool = True
    """False for probes that judge host facts alone."""
    versions: str = ""
    """Releases of TensorFlow for which the probe is meaningful, such as ``>=2.19``; empty: all."""


class Probe(Record):
    """How a probe is to be run."""

    needs: Needs = Needs()
    scope: Scope = Scope.HOST
    exclusive: bool = False
    """True if the probe measures or fills device memory, so that no other probe may use the device meanwhile."""
    quick: bool = False
    """True if the probe is part of ``--level quick``, which fills no memory and is safe beside running jobs."""
    stress: float = 0.0
    """For a probe that loads the GPUs, at ``--level stress`` or where it is named: its share of the time that the user
    gives with ``--for``. Its rows run at the same time, and nothing else runs meanwhile. It notes what it measures in
    :attr:`Context.load`. 0: not such a probe."""
    as_user: bool = False
    """True if its child sees the user's own environment; it is given no device and must not use one."""
    families: tuple[str, ...] = ()
    """For a probe without ``measure``, the fact families that it judges: while one is unknown, the probe is not
    green."""
    sampled: bool = False
    """True if the probe shows what an option or a strategy of TensorFlow does; if there are many GPUs it runs on a
    sample."""
    deadline_s: float = 60.0
    env: dict[str, str | None] = {}
    """Variables set (or, with None, cleared) for its child."""
    honours: tuple[str, ...] = ()
    """The user's memory variables that the probe takes into account, so that its child keeps them."""

    @property
    def variables(self) -> dict[str, str | None]:
        """All variables that are set (or, with None, cleared) for the probe's child.

        The user's memory variables are cleared, because each overrides the option of the program that a probe tries.
        """
        overriding = OVER_MEMORY if self.exclusive else ()
        return {name: None for name in overriding if name not in self.honours} | self.env


@dataclass(frozen=True)
class FindingKind:
    """A kind of finding that a probe can make; its texts are format strings over its figures."""

    name: str
    severity: Severity
    message: str
    fix: tuple[Action, ...]
    means: str = ""
    """The finding in a sentence without figures, for the manual; empty if the message has none."""

    def __set_name__(self, owner: type, name: str) -> None:
        object.__setattr__(self, "name", name)

    def found(self, **figures: Figure) -> Finding:
        """Return a finding of this kind with its figures filled in; numbers of bytes are shown in MiB."""
        shown = {name: _shown(name, figure) for name, figure in figures.items()}
        actions = tuple(fill_in(action, shown) for action in self.fix)
        return Finding(self.name, self.severity, self.message.format(**shown), actions, figures=figures)


def _shown(name: str, figure: Figure) -> Figure:
    return mib(figure) if name.endswith("bytes") and isinstance(figure, int | float) else figure


def mib(number: float) -> str:
    """Return a number of bytes for a person."""
    return f"{number / MIB:.0f} MiB"


KERNEL_LOG = fix.kernel_log("look for errors of the GPU")
LOOK = (fix.nvidia_smi("look for other processes"), KERNEL_LOG)
GPU_ERRORS = (fix.nvidia_smi("errors of the GPU's memory", "-q -d ECC"), KERNEL_LOG)
KEEP_KERNELS = fix.export("CUDA_CACHE_MAXSIZE", "4294967296", "keeps compiled kernels; with CUDA_CACHE_PATH on a disk")
BY_HAND = (
    fix.edit('with tf.device("/GPU:0"):', "place it by hand"),
    fix.edit("tf.config.set_soft_device_placement(False)", "the error then says the reason"),
)


def trust_no(what: str) -> tuple[Action, ...]:
    """Return the advice for GPUs that compute wrong results."""
    return fix.note(f"trust no {what}"), *GPU_ERRORS


Do = str | Action | tuple[Action, ...]
"""The advice of a finding: a sentence, or actions."""


def _actions(do: Do) -> tuple[Action, ...]:
    if isinstance(do, str):
        return (fix.note(do),)
    return do if isinstance(do, tuple) else (do,)


def fail(message: str, *, do: Do, means: str = "") -> FindingKind:
    """Return a fault that fails the run; the name of its attribute in :class:`Faults` becomes its name."""
    return FindingKind("", Severity.FAIL, message, _actions(do), means)


def warn(message: str, *, do: Do, means: str = "") -> FindingKind:
    """Return a fault that fails the run under ``--strict`` alone."""
    return FindingKind("", Severity.WARNING, message, _actions(do), means)


def note(message: str, *, do: Do, means: str = "") -> FindingKind:
    """Return something worth knowing that is not a fault."""
    return FindingKind("", Severity.NOTE, message, _actions(do), means)


class Faults:
    """Base of a probe's ``Fault``; its attributes are made by :func:`fail`, :func:`warn` or :func:`note`."""

    @classmethod
    def kinds(cls) -> tuple[FindingKind, ...]:
        """Return the probe's own kinds, then those that it shares with others."""
        return tuple(kind for base in cls.__mro__ for kind in vars(base).values() if isinstance(kind, FindingKind))


class GpuFaults(Faults):
    """The findings of every probe that lists its GPUs."""

    gpu_not_seen = fail(
        "TensorFlow lists {seen} of the {given} GPUs that NVML reports and this probe was given",
        means="TensorFlow lists fewer GPUs than NVML reports and the probe was given.",
        do=SEE_THE_CAUSE,
    )
    operation_failed = fail(
        "an operation on a GPU raised {error}",
        means="The GPU or one of its libraries answered with an error; nothing more was measured.",
        do=SEE_THE_CAUSE,
    )
    process_ended = fail(
        "the process ended ({end}) after {error}",
        means="The GPU or one of its libraries answered with an error; nothing more was measured.",
        do=SEE_THE_CAUSE,
    )
    operation_hangs = fail(
        "{what}",
        means="A call of one of the GPU's libraries, or of the driver, never came back; nothing more was measured.",
        do=SEE_THE_CAUSE,
    )


class ReplicaFaults(GpuFaults):
    """The findings of every probe that says which GPU is behind a device."""

    other_gpu = fail(
        "{device} is the GPU {found} by TensorFlow's own description, it should be {expected}",
        means="A device of TensorFlow is another GPU than its place in CUDA_VISIBLE_DEVICES says.",
        do=fix.export(
            "CUDA_VISIBLE_DEVICES", "GPU-...", "choose GPUs by UUID, which no order changes; nvidia-smi -L lists them"
        ),
    )


class KernelFaults(ReplicaFaults):
    """The findings of every probe that runs a :class:`Kernel`."""

    wrong_result = fail(
        "a matrix product on {device} ({pci_bus_id}) is wrong",
        means="A matrix product on a GPU is wrong.",
        do=trust_no("result of this GPU"),
    )


class WorkFaults(KernelFaults):
    """The findings of every probe that does :class:`Work`."""

    memory_elsewhere = fail(
        "a tensor of {wanted_bytes} on {device} raised the memory of {pci_bus_id} by {taken_bytes}; "
        "the memory that rose most was that of {most}",
        means="A tensor on one GPU took memory of another.",
        do=fix.export(
            "CUDA_VISIBLE_DEVICES", "GPU-...", "choose GPUs by UUID, which no order changes; nvidia-smi -L lists them"
        ),
    )


class Verified(Record):
    """A statement of a judge: a kernel ran on this GPU, and its result and PCI bus id were checked."""

    pci_bus_id: str


Judgement = Finding | Verified | Gap
"""A judge yields a :class:`Gap` for what the measurement does not allow it to judge."""
Findings = Iterator[Judgement]


class Reading(Record, AnyReading):
    """The numbers, texts and placements that ``measure`` returns. Each field has its unit and meaning."""

    def figure(self) -> str:
        """Return the key figure: a few words for the table."""
        raise NotImplementedError

    def table(self) -> tuple[tuple[str, ...], ...]:
        """Return the part of the reading that is best read as a table, headers first; empty if there is none."""
        return ()

    def limits(self) -> tuple[Limit, ...]:
        """Return the limits that memory use is compared with in a drawing; empty if no memory was measured."""
        return ()

    def gaps(self) -> tuple[Gap, ...]:
        """Return what the probe usually verifies but left out this time."""
        return ()

    def unusable(self) -> Findings:
        """Yield the findings that make the reading unusable; it is not judged further then."""
        return iter(())


class GpuReading(Reading, kw_only=True):
    """The reading of a probe of GPUs. The base class itself is the reading if TensorFlow listed too few GPUs.

    The framework fills these fields.
    """

    given: tuple[str, ...] = ()
    """PCI bus ids of the GPUs that the probe was given, in the order of ``CUDA_VISIBLE_DEVICES``."""
    seen: int = 0
    """The number of GPUs that TensorFlow listed."""

    @property
    def complete(self) -> bool:
        """True if TensorFlow listed every GPU; otherwise nothing was measured."""
        return self.seen >= len(self.given)

    def unusable(self) -> Findings:
        if not self.complete:
            yield GpuFaults.gpu_not_seen.found(seen=self.seen, given=len(self.given))

    def figure(self) -> str:
        return f"TensorFlow lists {self.seen} of {len(self.given)} GPUs"


class Slice(Record):
    """A part of the time under load, of about half a second, in which a GPU did one kind of work."""

    began_s: float
    """Seconds since all GPUs of the row's probe were ready; negative while they were being prepared."""
    seconds: float
    work: str
    """The kind of work, such as ``float16 product`` or ``copy to the GPU``."""
    rate: float
    """Floating-point operations, or bytes that were read, written or copied, in a second: of the fastest tenth of a
    second, in which the host was least in the way."""
    waited: float | None = None
    """For which part of that tenth of a second the process waited for a processor of the host; None if the kernel does
    not count it."""
    results: int = 0
    """How many results were compared."""
    wrong: int = 0
    """How many elements of them were wrong."""
    where: str = ""
    """The first wrong element: its place, and what it should have been; "" if none was wrong."""
    alone: bool = False
    """True if no other GPU of the node was under load."""


_OF_GPUS = (NoReading.SIGNAL, NoReading.TIMEOUT, NoReading.UNKILLABLE, NoReading.OPERATION_FAILED, NoReading.NO_RESULT)
"""How a process ends because of its GPU or the driver: killed by one of its own signals, in a call that hangs, by an
operation that raises, or by a library that calls ``exit``."""


class LoadReading(GpuReading, kw_only=True):
    """The reading of a probe of level stress: what it noted until it ended, however it ended."""

    slices: tuple[Slice, ...] = ()
    load_began_s: float = 0.0
    """Seconds from the beginning of the run to that of the load, to which the slices count."""
    planned_s: float = 0.0
    """For how many seconds the probe should have run."""
    ended: Broken | None = None
    """How the process ended before its time, such as ``killed by SIGABRT``; None if it ended by itself."""

    @property
    def failed(self) -> Broken | None:
        """How the process ended before its time, if that is the GPU's or the driver's doing; None otherwise."""
        by_gpu = self.ended is not None and self.ended.cause in _OF_GPUS and not self.ended.by_the_run
        return self.ended if by_gpu else None

    @property
    def together(self) -> tuple[Slice, ...]:
        """The slices in which all GPUs of the probe were under load."""
        return tuple(part for part in self.slices if not part.alone)

    @property
    def results(self) -> int:
        """How many results were compared."""
        return sum(part.results for part in self.slices)

    @property
    def wrong(self) -> int:
        """How many elements of the results were wrong."""
        return sum(part.wrong for part in self.slices)

    def outcome_of(self, what: str) -> str:
        """Return how many results there were, called ``what``, and whether all are right, in a few words."""
        right = counted(self.wrong, "wrong element") if self.wrong else "all right"
        return f"{self.results} {what}, {right}"

    @property
    def measured_s(self) -> float:
        """Until when, in seconds since the beginning of the load, something was measured."""
        return max((part.began_s + part.seconds for part in self.slices), default=0.0)


class Beside(Record):
    """What else was measured in a run, for a judge that compares GPUs."""

    others: tuple[LoadReading, ...] = ()
    """The readings of the same probe on the other GPUs."""
    health: tuple[GpuHealth, ...] = ()
    """What NVML said of the GPUs meanwhile."""


NOTHING_BESIDE = Beside()


class EndedReading(GpuReading, kw_only=True):
    """The reading of a probe that was ended by an operation on a GPU."""

    operation_raised: str
    """Type and message of the error, or its line in the log; for an operation that never returned, its name and how
    long gpudiag waited."""
    hung: bool = False
    process_end: str = ""
    """How the process ended after the error, such as ``killed by SIGABRT``; "": TensorFlow raised the error."""

    def unusable(self) -> Findings:
        if self.process_end:
            yield GpuFaults.process_ended.found(error=self.operation_raised, end=self.process_end)
            return
        if self.hung:
            yield GpuFaults.operation_hangs.found(what=self.operation_raised)
            return
        yield GpuFaults.operation_failed.found(error=self.operation_raised)

    def figure(self) -> str:
        return "an operation on a GPU never returned" if self.hung else "an operation on a GPU failed"


class Measurement(Record):
    """The message from a probe's child: the reading as JSON, and the memory use observed meanwhile."""

    reading: msgspec.Raw
    complete: bool = True
    """False if TensorFlow listed too few GPUs, so that nothing was measured and the reading is a
    :class:`GpuReading`."""
    timelines: tuple[Timeline, ...] = ()


class FewerListed(Exception):  # noqa: N818  # what was measured, not an error
    """Ends the measurement of a probe if TensorFlow does not list every GPU."""

    def __init__(self, seen: int) -> None:
        super().__init__(f"TensorFlow lists {counted(seen, 'GPU')}, fewer than were given")
        self.seen = seen


class Raised(Record):
    """An exception as the user would see it."""

    type: str
    """Class name, such as ``InvalidArgumentError``."""
    message: str

    @property
    def brief(self) -> str:
        """Type and message on one line, cut at 200 characters, for the message of a finding; a code is never cut."""
        from gpudiag.knowledge.graph_error import brief  # loads the table of codes

        return brief(self.type, self.message)


class MemoryUse(Record):
    """Memory of one GPU at one moment, as NVML reports it."""

    used_bytes: int
    """Bytes in use on the whole device, by all processes."""
    own_bytes: int | None
    """Bytes that this process uses; None if NVML does not report them (containers, MIG, WSL)."""

    def __sub__(self, before: MemoryUse) -> int:
        """Return by how many bytes the use of the device rose."""
        return self.used_bytes - before.used_bytes

    def plus(self, name: str, most_bytes: int, gpu: str = "") -> Limit:
        """Return a limit on the memory that may be allocated beside this use; ``gpu`` is a PCI bus id."""
        return Limit(name, self.used_bytes + most_bytes, gpu)


class CudaDevice(Record):
    """A GPU as the CUDA driver shows it to a process."""

    pci_bus_id: str
    uuid: str
    """The UUID without the prefix ``GPU-`` or ``MIG-``."""


class Kernel(Record):
    """A matrix product computed on a GPU."""

    device: str
    """TensorFlow's name of the device that holds the result, such as ``GPU:0``."""
    pci_bus_id: str
    """The PCI bus id of the device in TensorFlow's own description; empty if it gave none."""
    correct: bool
    """True if the product equals the known result."""

    def verified_on(self, pci_bus_id: str) -> Findings:
        """Judge the kernel, which should have run on the GPU with this PCI bus id."""
        if self.pci_bus_id != pci_bus_id:
            bus_id = self.pci_bus_id or "(not named)"
            yield KernelFaults.other_gpu.found(device=self.device, found=bus_id, expected=pci_bus_id)
        elif not self.correct:
            yield KernelFaults.wrong_result.found(device=self.device, pci_bus_id=pci_bus_id)
        else:
            yield Verified(pci_bus_id)


FILLED_BYTES = 64 * MIB
"""Size of the tensor by which :class:`Work` distinguishes a GPU from the others."""


class Work(Record):
    """A tensor that was stored and computed on one device."""

    kernel: Kernel
    rose: dict[str, int]
    """By how many bytes the memory of each GPU (PCI bus id) rose while a tensor was filled on the device."""

    def verified_on(self, pci_bus_id: str) -> Findings:
        """Judge the work, which should have been done on the GPU with this PCI bus id."""
        most = max(self.rose, key=lambda gpu: self.rose[gpu])
        confirmed = most == pci_bus_id and self.rose[pci_bus_id] >= FILLED_BYTES / 2
        if self.kernel.pci_bus_id != pci_bus_id or confirmed:
            yield from self.kernel.verified_on(pci_bus_id)
            return
        yield WorkFaults.memory_elsewhere.found(
            wanted_bytes=FILLED_BYTES,
            device=self.kernel.device,
            pci_bus_id=pci_bus_id,
            taken_bytes=self.rose[pci_bus_id],
            most=most,
        )


def refuse_disturbance(before: MemoryUse, *later: MemoryUse) -> None:
    """Raise :class:`Disturbed` if memory use changed by more than this process's share, or fell."""
    for after in later:
        rise = others = after - before
        if before.own_bytes is not None and after.own_bytes is not None:
            others = rise - (after.own_bytes - before.own_bytes)
        elif rise >= 0:
            continue  # NVML does not report whose it is, so it may be ours
        if abs(others) > SLACK_BYTES:
            raise Disturbed(f"another process changed its memory on this GPU by {others / MIB:.0f} MiB meanwhile")


class PlacementLog(Protocol):
    """TensorFlow's log inside ``with ctx.placements()``; complete when the block has ended."""

    @property
    def placements(self) -> tuple[Placement, ...]: ...

    @property
    def lines(self) -> tuple[str, ...]:
        """Every captured line, stdout before stderr."""


class Peer(Protocol):
    """The other process of a probe: the process of ``peer`` for ``measure``, and the reverse."""

    def meet(self, name: str, told: object = None) -> Any:
        """Wait until the other process calls ``meet`` with this ``name``; return the ``told`` (JSON) that it passed.

        Each name is used once. The only time limit is the probe's deadline.
        """


class Load(Protocol):
    """The time that a probe of level stress has, its company, and its notes."""

    @property
    def seconds(self) -> float:
        """How long the probe is to load its GPUs."""

    @property
    def number(self) -> int:
        """The place of this process among those of the probe, from 0."""

    @property
    def count(self) -> int:
        """How many processes the probe has, one for each of its rows."""

    def meet(self, name: str, told: object = None) -> list[Any]:
        """Wait until every process of the probe that lives has called ``meet`` with this ``name``; return what each
        ``told`` (JSON), without those that are gone."""

    def start(self) -> None:
        """Meet, and set the time to 0 for all processes of the probe."""

    def now(self) -> float:
        """Return the seconds since :meth:`start`."""

    def rest(self, until_s: float) -> None:
        """Do nothing until this time by :meth:`now`."""

    def note(self, part: Slice) -> None:
        """Record a part of the measurement. It is kept, whatever becomes of this process."""


class ProbeModule(Protocol):
    """The definitions in a probe's file: ``measure`` and its companions, or ``figure`` for a row of the host."""

    __doc__: str | None
    __file__: str | None
    PROBE: Probe
    judge: Callable[..., Findings]
    """Judge the reading; the facts are passed if it has a second parameter, and :class:`Beside` if it has a third
    one."""

    def measure(self, ctx: Context, /) -> Reading: ...

    def peer(self, ctx: Context, /) -> object: ...

    def figure(self, facts: Facts, /) -> object: ...


class Context(Protocol):
    """The only interface through which a probe reaches TensorFlow, NVML and devices."""

    @property
    def tf(self) -> Any:
        """The module ``tensorflow``, imported, before any device is queried."""

    def import_log(self) -> tuple[str, ...]:
        """Import TensorFlow; return the lines that the import printed, here or in the process that forked this one."""

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """The GPUs this child was given, in the order TensorFlow numbers them."""

    @property
    def given(self) -> tuple[str, ...]:
        """The PCI bus ids of the GPUs that this child was given."""

    def list_gpus(self, given: int | None = None) -> list[Any]:
        """Return ``tf.config.list_physical_devices("GPU")``.

        The measurement ends if there are fewer GPUs than this child has, or than its mask has ``given``.
        """

    def make_gpus(self) -> list[str]:
        """Let TensorFlow make its GPU devices; return their names (``GPU:0``). Too few of them end the measurement."""

    def verify(self, product: Any, created: Mapping[str, str] | None = None, factor: float = 1.0) -> Kernel:
        """Return the kernel that computed ``product``, :data:`gpudiag.probes.common.MATRIX` squared, times ``factor``.

        ``created`` maps devices to PCI bus ids by TensorFlow's log; without it TensorFlow is asked.
        """

    def watch(self, gpu: Gpu) -> AbstractContextManager[Callable[[], MemoryUse]]:
        """Yield a function that asks NVML for the memory in use on ``gpu``.

        The block ends in :class:`gpudiag.errors.Disturbed` if another process changed its memory between the calls.
        """

    @property
    def peer(self) -> Peer:
        """The other process of this probe; raises ``RuntimeError`` in a probe without a function ``peer``."""

    @property
    def load(self) -> Load:
        """The time and the company of this probe; raises ``RuntimeError`` in a probe that is not of level stress."""

    def attempt(self, call: Callable[[], object]) -> Raised | None:
        """Call ``call`` and return the exception it raised, or None.

        Raises ``NoContext`` if no CUDA context could be made: no probe can measure anything then.
        """

    def apart(self, call: Callable[[], Answer], answer: type[Answer], env: Mapping[str, str | None]) -> Answer:
        """Call ``call`` in a separate process, a copy of this one with ``env`` set (or, with None, cleared).

        It is for values that a process fixes once, such as the GPUs that the CUDA driver shows. Use it before this
        process queries a device. Raises ``RuntimeError`` if ``call`` raised, or its process died.
        """

    def clock(self) -> Callable[[], float]:
        """Return a function that returns for how many seconds this process could run since now.

        Time in which the machine was busy with other processes does not count.
        """

    def placements(self) -> AbstractContextManager[PlacementLog]:
        """Capture, at file-descriptor level, what TensorFlow writes inside the block; no logging is switched on."""

    def memory(self, gpu: Gpu) -> MemoryUse:
        """Ask NVML for the memory in use on ``gpu``."""

    def used_memory(self, gpu: Gpu) -> int | None:
        """Return the bytes in use on ``gpu``; None if NVML is absent or does not say."""

    def state(self, gpu: Gpu) -> GpuState:
        """Ask NVML for the current health and limits of ``gpu``."""

    def cuda_devices(self) -> tuple[CudaDevice, ...]:
        """Return the GPUs that the CUDA driver shows this process, by its ordinals; empty if it shows none or fails.

        This initialises the driver: ``CUDA_VISIBLE_DEVICES`` and ``CUDA_DEVICE_ORDER`` are read now, and never again.
        """

    def context_refusals(self) -> dict[str, str]:
        """Let the CUDA driver create a context on each GPU; return the errors of those it refuses, by PCI bus id."""

    def cudnn_version(self) -> str | None:
        """Return the version of the cuDNN that TensorFlow has loaded, such as ``9.3.0``; None if there is none.

        TensorFlow 2.18-2.21 loads it when it lists the GPUs, so ask after that.
        """

    def pci_bus_ids(self) -> dict[str, str]:
        """Map each logical GPU of TensorFlow (``GPU:0``) to a PCI bus id.

        The source is TensorFlow's own device description. Asking creates the devices with default options if they
        do not exist yet, so ask after the devices under test were created.
        """
