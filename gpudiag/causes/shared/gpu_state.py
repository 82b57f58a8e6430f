"""Shared by causes: what NVML says of the health of GPUs, and what was tried."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec.structs import replace

from gpudiag.cause import Evidence
from gpudiag.knowledge.log import recognised
from gpudiag.model.facts import Attempt, DriverFacts, GpuState, NvmlDevice, Unknown
from gpudiag.model.visibility import gpus_in_scope
from gpudiag.probes.discovery import first_op


def in_scope(evidence: Evidence) -> tuple[NvmlDevice, ...]:
    """Return what NVML says of each GPU in scope, in NVML's order, and of its state while it computed, if it did."""
    chosen = {gpu.pci_bus_id for gpu in gpus_in_scope(evidence.facts)}
    devices = (device for device in evidence.facts.nvml_devices if device.pci_bus_id in chosen)
    readings = evidence.readings("discovery.first_op", first_op.Reading)
    states = {pci: state for reading in readings for pci, state in reading.states.items()}
    return tuple(replace(device, state=_later(device.state, states.get(device.pci_bus_id))) for device in devices)


def _later(before: GpuState, after: GpuState | None) -> GpuState:
    """Return what is known of both: of a MIG instance less is known than of its GPU."""
    known = {} if after is None else {name: getattr(after, name) for name in after.__struct_fields__}
    return replace(before, **{name: value for name, value in known.items() if value is not None})


def with_state(evidence: Evidence, fits: Callable[[GpuState], bool]) -> tuple[NvmlDevice, ...]:
    """Return the GPUs in scope whose state ``fits``."""
    return tuple(device for device in in_scope(evidence) if fits(device.state))


def named(devices: tuple[NvmlDevice, ...]) -> str:
    return " and ".join(f"GPU {device.index}" for device in devices)


def indices(devices: tuple[NvmlDevice, ...]) -> str:
    return ",".join(str(device.index) for device in devices)


def opened(evidence: Evidence) -> tuple[Attempt, ...]:
    """Return the device files that were opened, or could not be; none if that was not tried."""
    tried = evidence.facts.tried
    return () if isinstance(tried, Unknown) else tried.opened


def attempts(evidence: Evidence, purpose: str) -> Iterator[Attempt]:
    """Yield what came of writing to the folders for ``purpose``."""
    tried = evidence.facts.tried
    yield from () if isinstance(tried, Unknown) else (one for one in tried.written if one.purpose == purpose)


def lists_none(evidence: Evidence) -> bool:
    """Return whether TensorFlow was asked, and lists no GPU."""
    return evidence.trace is not None and not evidence.trace.listed


def kernel_lines(evidence: Evidence, *words: str, most: int = 3) -> tuple[str, ...]:
    """Return the last lines of the kernel's log that have one of ``words``; none where it may not be read."""
    driver = evidence.facts.driver
    lines = driver.kernel_log or () if isinstance(driver, DriverFacts) else ()
    found = [line for line in lines if any(word.lower() in line.lower() for word in words)]
    return tuple(f"kernel log: {line}" for line in dict.fromkeys(found))[-most:]


def xid(evidence: Evidence) -> str:
    """Return what the last Xid in the kernel's log means; "" if there is none, or it may not be read."""
    events = [event for line in kernel_lines(evidence, "Xid") for event in recognised(line)]
    said = [event for event in events if event.message.name.startswith("xid_")]
    return said[-1].message.meaning.format(code=said[-1]["code"]) if said else ""


MEANINGS = {
    "EACCES": "permission denied",
    "EDQUOT": "the quota is used up",
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
    """Return an error's name with what it means."""
    return f"{error} ({MEANINGS[error]})" if error in MEANINGS else str(error)
