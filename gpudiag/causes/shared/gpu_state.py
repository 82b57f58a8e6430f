"""Shared by causes: NVML's report on the health of GPUs, and the results of attempts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from gpudiag.cause import Evidence, Rows
from gpudiag.causes.shared.machine import stage_of_driver
from gpudiag.fix import Action, check, configure, fill_in, reload_uvm
from gpudiag.knowledge.log import recognised
from gpudiag.knowledge.message import Event, Worth
from gpudiag.knowledge.messages import kernel as kernel_messages
from gpudiag.knowledge.messages import xid as xid_messages
from gpudiag.model.diagnosis import Confidence, Stage
from gpudiag.model.facts import DriverFacts, GpuState, KernelFacts, NvmlDevice, PathAttempt, TriedFacts, Unknown
from gpudiag.model.report import Gpu
from gpudiag.model.visibility import gpus_in_scope
from gpudiag.probes.discovery import first_op


class GpusInScope(tuple[NvmlDevice, ...]):
    """NVML's report on each GPU in scope, in NVML's order, and its state while it computed, if it did."""

    __slots__ = ()

    @classmethod
    def of(cls, evidence: Evidence) -> GpusInScope:
        chosen = {gpu.pci_bus_id for gpu in gpus_in_scope(evidence.facts)}
        readings = Rows(evidence.rows).readings("discovery.first_op", first_op.Reading)
        states = {pci: state for reading in readings for pci, state in reading.states.items()}
        return cls(
            replace(device, state=_later(device.state, states.get(device.pci_bus_id)))
            for device in evidence.facts.nvml_devices
            if device.pci_bus_id in chosen
        )

    def whose_state(self, fits: Callable[[GpuState], bool]) -> tuple[NvmlDevice, ...]:
        """Return the GPUs whose state ``fits``."""
        return tuple(device for device in self if fits(device.state))


def _later(before: GpuState, after: GpuState | None) -> GpuState:
    """Return the later state, completed by the earlier: NVML reports less about a MIG instance than about its GPU."""
    known = {} if after is None else {name: getattr(after, name) for name in after.__struct_fields__}
    return replace(before, **{name: value for name, value in known.items() if value is not None})


def named(devices: tuple[NvmlDevice, ...]) -> str:
    if len(devices) > 2:
        return f"each of GPU {', '.join(str(device.index) for device in devices)}"
    return " and ".join(f"GPU {device.index}" for device in devices)


def indices(devices: tuple[NvmlDevice, ...]) -> str:
    return ",".join(str(device.index) for device in devices)


def addresses(devices: Iterable[NvmlDevice | Gpu]) -> tuple[str, ...]:
    """Return the PCI bus ids of the GPUs, for :attr:`gpudiag.cause.Match.gpus`."""
    return tuple(device.pci_bus_id for device in devices)


def written(tried: TriedFacts | None, purpose: str) -> Iterator[PathAttempt]:
    """Yield the results of writing to the folders for ``purpose``."""
    yield from () if tried is None else (attempt for attempt in tried.written if attempt.purpose == purpose)


@dataclass(frozen=True)
class NoneListed:
    """TensorFlow was asked for its GPUs, and lists none."""

    stage: Stage
    """The first stage at which a failing driver shows."""

    @classmethod
    def of(cls, evidence: Evidence) -> NoneListed | None:
        if evidence.trace is None or evidence.trace.listed:
            return None
        return cls(stage_of_driver(evidence.listing))


class KernelLog(tuple[str, ...]):
    """The lines of the kernel's log about NVIDIA's driver; empty if it may not be read."""

    only_gpu: str = ""
    """The PCI bus id of the machine's GPU, if it has one alone: lines that name no GPU are about it."""

    @classmethod
    def of(cls, evidence: Evidence) -> KernelLog:
        kernel, driver, nodes = evidence.facts.kernel, evidence.facts.driver, evidence.facts.device_nodes
        if isinstance(kernel, KernelFacts):
            log = cls(kernel.log or ())
        else:  # an older report
            log = cls(driver.kernel_log or () if isinstance(driver, DriverFacts) else ())
        on_bus = () if isinstance(nodes, Unknown) else nodes.pci_gpus
        if len(on_bus) == 1:
            log.only_gpu = on_bus[0]
        return log

    def last(self, *words: str, most: int = 3, gpus: Sequence[str] = ()) -> tuple[str, ...]:
        """Return the last lines that have one of ``words``, as evidence; with ``gpus`` none about another GPU."""
        of_these = self._about(gpus)
        found = [line for line in of_these if any(word.lower() in line.lower() for word in words)]
        return tuple(f"{_SOURCE}{line}" for line in dict.fromkeys(found))[-most:]

    @property
    def xid(self) -> str:
        """The meaning of the last Xid; "" if there is none."""
        events = [event for line in self.last("Xid") for event in recognised(line)]
        said = [event for event in events if event.message.name.startswith("xid_")]
        return said[-1].message.meaning.format(code=said[-1]["code"]) if said else ""

    def _about(self, gpus: Sequence[str]) -> Iterator[str]:
        """Yield the lines about one of ``gpus``, and those that name no GPU; all of them if no GPU is given."""
        for line in self:
            named = set(map(str.lower, _PCI.findall(line)))
            if not named or not gpus or _names(named, gpus):
                yield line

    def reason(self, gpus: Sequence[str] = ()) -> KernelReason | None:
        """Return why the driver does not use these GPUs (PCI bus ids), in the words of the kernel's log.

        Lines that name another GPU say nothing of these. Of several messages the first that names a fault counts: what
        comes after it follows from it. None if no line is known, or if they only blame a program.
        """
        events = [
            event
            for line in self._about(gpus)
            for event in recognised(f"{_SOURCE}{line}")
            if event.message in _OF_THE_KERNEL and event.message.worth is Worth.FAULT
        ]
        best = min(events, key=_doubt, default=None)
        if best is None:
            return None
        lines = [best.line, *(event.line for event in events if _doubt(event) > _doubt(best))]
        # Several faults lead to such a line, but one that names the GPU, and no program, is about this one.
        named = set(map(str.lower, _PCI.findall(best.line))) or {*filter(None, [self.only_gpu[:-2].lower()])}
        names = tuple(gpu for gpu in gpus if _names(named, (gpu,)))
        certain = _doubt(best) == 0 or (bool(names) and best.message not in xid_messages.XIDS)
        return KernelReason(
            best, tuple(dict.fromkeys(lines))[:3], Confidence.LIKELY if certain else Confidence.POSSIBLE, names
        )

    @property
    def slept(self) -> tuple[str, ...]:
        """The kernel's lines about a suspend since the machine was started, as evidence."""
        return self.last("PM: suspend exit", "PM: hibernation")


AFTER_SLEEP = (
    reload_uvm("end the programs and containers that use a GPU first: it cannot be unloaded while one does"),
    check("sudo fuser -v /dev/nvidia-uvm", "shows who uses it"),
    configure(
        "sudo systemctl enable nvidia-suspend nvidia-resume",
        "saves the driver's state at the next suspend, and restores it",
    ),
)
"""How CUDA is made to work again after the machine was suspended.

Loading nvidia_uvm again does it (https://github.com/pop-os/default-settings/pull/64, and the threads of
``tests/corpus``). The services mend nothing that is lost already: by NVIDIA's README, "Configuring Power Management
Support", they save what is in the GPU's memory before the next suspend, and restore it.
"""
_SOURCE = "kernel log: "
_PCI = re.compile(r"[\da-f]{4,8}:[\da-f]{2}:[\da-f]{2}", re.IGNORECASE)
_OF_THE_KERNEL = frozenset((*kernel_messages.FAMILY.messages, *xid_messages.FAMILY.messages, *xid_messages.XIDS))


def _names(named: set[str], gpus: Sequence[str]) -> bool:
    """Return whether a line that names these devices (without their function) is about one of ``gpus``."""
    return bool(named) and any(gpu.lower().startswith(tuple(named)) for gpu in gpus)


def _doubt(event: Event) -> int:
    """Return how little an event says of the cause: 0 it names a fault, 1 several lead to it, 2 it only follows."""
    message = event.message
    if message.symptom or message is xid_messages.INIT_FAILED:
        return 2
    return 1 if message.confidence is Confidence.POSSIBLE else 0


@dataclass(frozen=True)
class KernelReason:
    """A fault that the kernel's log names."""

    event: Event
    lines: tuple[str, ...]
    """The line that names it, and lines that follow from it, as evidence."""
    confidence: Confidence
    gpus: tuple[str, ...] = ()
    """PCI bus ids of the GPUs asked about that the line names."""

    @property
    def is_likely(self) -> bool:
        return self.confidence is Confidence.LIKELY

    @property
    def meaning(self) -> str:
        return self.event.message.meaning.format_map(self.event.fields)

    @property
    def fix(self) -> tuple[Action, ...]:
        return tuple(fill_in(action, self.event.fields) for action in self.event.message.fix)


MEANINGS = {
    "EACCES": "permission denied",
    "EDQUOT": "the quota is used up",
    "EFBIG": "files may not become that large",
    "EIO": "the driver answers with an error",
    "ENODEV": "no such device",
    "ENOENT": "it does not exist, and cannot be created",
    "ENOSPC": "no space left",
    "ENXIO": "no driver has its number",
    "EPERM": "not permitted",
    "EROFS": "read-only file system",
    "ECONNREFUSED": "nobody listens",
}


def meaning(error: str | None) -> str:
    """Return an error's name with its meaning."""
    return f"{error} ({MEANINGS[error]})" if error in MEANINGS else str(error)
