"""Shared by causes: NVML's report on the health of GPUs, and the results of attempts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from msgspec.structs import replace

from gpudiag.cause import Evidence, Rows
from gpudiag.causes.shared.machine import stage_of_driver
from gpudiag.knowledge.log import recognised
from gpudiag.model.diagnosis import Stage
from gpudiag.model.facts import DriverFacts, GpuState, NvmlDevice, PathAttempt, TriedFacts
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

    __slots__ = ()

    @classmethod
    def of(cls, evidence: Evidence) -> KernelLog:
        driver = evidence.facts.driver
        return cls(driver.kernel_log or () if isinstance(driver, DriverFacts) else ())

    def last(self, *words: str, most: int = 3) -> tuple[str, ...]:
        """Return the last lines that have one of ``words``, as evidence."""
        found = [line for line in self if any(word.lower() in line.lower() for word in words)]
        return tuple(f"kernel log: {line}" for line in dict.fromkeys(found))[-most:]

    @property
    def xid(self) -> str:
        """The meaning of the last Xid; "" if there is none."""
        events = [event for line in self.last("Xid") for event in recognised(line)]
        said = [event for event in events if event.message.name.startswith("xid_")]
        return said[-1].message.meaning.format(code=said[-1]["code"]) if said else ""


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
