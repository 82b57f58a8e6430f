"""The contract of a probe: one scenario in one file, ``gpudiag/probes/<area>/<name>.py``.

A probe file has a docstring (its first line is the summary; below it the headings of :data:`HEADINGS`), a
:class:`Probe` called ``PROBE``, its :class:`Kind` values, ``judge(reading, facts, limits)`` and ``CASES``. A probe that
measures also has a ``Reading`` and ``measure``. A host probe has neither, because the facts were gathered already: it
has ``judge(facts, limits)`` and ``figure(facts)``.

``measure(ctx)`` runs in a child process. It may crash, hang or print, and it judges nothing. ``judge`` is pure and runs
in the parent, also on a report that was saved years ago.

A probe that needs a second process has a function ``peer(ctx)``: it runs in a child of its own, at the same time, on
the same GPUs, in the same environment and under the same deadline. The two talk through ``ctx.peer``; what ``peer``
returns is ignored. Where it raises or dies while ``measure`` runs the probe is broken; where ``measure`` ends first it
is killed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from enum import Enum
from typing import Any, Protocol, TypeVar

from gpudiag.hostfacts import Facts
from gpudiag.model import Figure, Finding, Gpu, Limits, Severity
from gpudiag.placement import Placement
from gpudiag.record import Record

Answer = TypeVar("Answer", bound=Record)

HEADINGS = ("What it does", "Why it matters", "What a failure means", "What to do")


class Scope(str, Enum):
    """What a probe runs on; it decides how many rows it gives."""

    HOST = "host"
    """Once, without a GPU: host facts, or TensorFlow on the CPU."""
    EACH_GPU = "each GPU"
    """Once for every GPU in scope, each child seeing only its own."""
    ALL_GPUS = "all GPUs"
    """Once, seeing every GPU in scope."""


class Needs(Record):
    """What a probe cannot do without; where it is lacking the row is ``Skipped`` with that reason."""

    gpus: int = 0
    """How many GPUs one child must see."""
    free_bytes: int = 0
    """Memory that must be free on each of them, besides the CUDA contexts of its processes."""
    tensorflow: bool = True
    """False for probes that judge host facts alone."""
    versions: str = ""
    """Releases of TensorFlow it is meaningful under, as a version specifier such as ``>=2.19``; empty: all."""


class Probe(Record):
    """How a probe is to be run."""

    needs: Needs = Needs()
    scope: Scope = Scope.HOST
    exclusive: bool = False
    """True: it measures or fills device memory, so nobody else may use the device meanwhile."""
    quick: bool = False
    """True: it is part of ``--level quick``, which fills no memory and is safe beside running jobs."""
    as_user: bool = False
    """True: its child sees what the user's own programs see; no device is handed out, so it must not touch one."""
    families: tuple[str, ...] = ()
    """Of the facts that a probe without ``measure`` judges: while one is not known, the probe is not green."""
    deadline_s: float = 60.0
    env: dict[str, str | None] = {}
    """Variables set (or, with None, cleared) for its child."""


class Kind(Record):
    """A kind of finding that a probe can make; ``message`` and ``advice`` are format strings over its figures."""

    name: str
    severity: Severity
    message: str
    advice: str

    def found(self, **figures: Figure) -> Finding:
        """Return a finding of this kind, its figures put into the texts."""
        return Finding(self.name, self.severity, self.message.format(**figures), self.advice.format(**figures), figures)


class Verified(Record):
    """A judge's statement that a kernel ran on this GPU, its result and PCI bus id checked."""

    pci_bus_id: str


Judgement = Finding | Verified


class Reading(Record):
    """What ``measure`` returns: numbers, texts and placements. Each field carries its unit and meaning."""

    def figure(self) -> str:
        """Return the key figure: a few words for the table."""
        raise NotImplementedError

    def table(self) -> tuple[tuple[str, ...], ...]:
        """Return what is best read as a table, the headers first; empty where nothing is."""
        return ()


class Raised(Record):
    """An exception as the user would see it."""

    type: str
    """Class name, such as ``InvalidArgumentError``."""
    message: str

    @property
    def brief(self) -> str:
        """Type and message on one line, cut at 200 characters: for the message of a finding."""
        line = " ".join(f"{self.type}: {self.message}".split())
        return line if len(line) <= 200 else f"{line[:199]}…"


class MemoryUse(Record):
    """Memory of one GPU at one moment, as NVML reports it."""

    used_bytes: int
    """Of the whole device, every process counted."""
    own_bytes: int | None
    """Of this process; None where NVML does not tell (containers, MIG, WSL)."""


class CudaDevice(Record):
    """A GPU as the CUDA driver shows it to a process."""

    pci_bus_id: str
    uuid: str
    """Without the prefix ``GPU-`` or ``MIG-``."""


class PlacementLog(Protocol):
    """What TensorFlow logged inside ``with ctx.placements()``; complete when the block has ended."""

    @property
    def placements(self) -> tuple[Placement, ...]: ...

    @property
    def lines(self) -> tuple[str, ...]:
        """Every captured line, stdout before stderr."""


class Peer(Protocol):
    """The other process of a probe: that of ``peer`` for ``measure``, and the reverse."""

    def meet(self, name: str, told: object = None) -> Any:
        """Wait until the other process is at its ``meet`` of the same ``name``; return what it ``told`` (JSON).

        Each name is met once. There is no time limit but the probe's deadline.
        """


class Context(Protocol):
    """What a probe may use. It reaches TensorFlow, NVML and devices only through this."""

    @property
    def tf(self) -> Any:
        """The module ``tensorflow``, imported but with no device queried yet."""

    def import_log(self) -> tuple[str, ...]:
        """Import TensorFlow; return the lines it printed then, here or in the process that this one was forked from."""

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """The GPUs this child was given, in the order TensorFlow numbers them."""

    @property
    def peer(self) -> Peer:
        """The other process of this probe; raises ``RuntimeError`` in a probe that has no function ``peer``."""

    def attempt(self, call: Callable[[], object]) -> Raised | None:
        """Call ``call`` and return what it raised, or None.

        Raises ``NoContext`` where no CUDA context could be made: no probe can measure anything then.
        """

    def apart(self, call: Callable[[], Answer], answer: type[Answer], env: Mapping[str, str | None]) -> Answer:
        """Call ``call`` in a process of its own, a copy of this one with ``env`` set (or, with None, cleared).

        For what a process settles once and for all, such as what the CUDA driver shows it. Call it before this process
        has queried a device. Raises ``RuntimeError`` where ``call`` raised, or its process died.
        """

    def placements(self) -> AbstractContextManager[PlacementLog]:
        """Capture, at file-descriptor level, what TensorFlow writes inside the block; switches nothing on."""

    def memory(self, gpu: Gpu) -> MemoryUse:
        """Ask NVML for the memory in use on ``gpu``."""

    def cuda_devices(self) -> tuple[CudaDevice, ...]:
        """Return the GPUs that the CUDA driver shows this process, by its ordinals; empty where it shows none or fails.

        This initialises the driver: ``CUDA_VISIBLE_DEVICES`` and ``CUDA_DEVICE_ORDER`` are read now, and never again.
        """

    def context_refusals(self) -> dict[str, str]:
        """Have the CUDA driver make a context on each GPU; return those where it refuses: PCI bus id to its error."""

    def cudnn_version(self) -> str | None:
        """Return the version of the cuDNN that TensorFlow has loaded, such as ``9.3.0``; None where there is none.

        TensorFlow 2.18-2.21 loads it when it lists the GPUs, so ask after that.
        """

    def pci_bus_ids(self) -> dict[str, str]:
        """Map each logical GPU of TensorFlow (``GPU:0``) to a PCI bus id.

        The source is TensorFlow's own device description. Asking creates the devices with default options where they
        do not exist yet, so ask after the devices under test were created.
        """


class Case(Record):
    """An example of judging: a reading (or facts, for a host probe) and the kinds that must be found in it."""

    name: str
    expect: tuple[str, ...]
    reading: Any = None
    facts: Facts | None = None
    """None: those of an ordinary machine without a GPU."""
    limits: Limits = Limits()
    verified: tuple[str, ...] = ()
