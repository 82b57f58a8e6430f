"""Shared by causes: memory that is somebody else's, or less than a program assumes."""

from __future__ import annotations

from gpudiag.cause import Evidence
from gpudiag.hostfacts import NvmlDevice
from gpudiag.knowledge.message import Message
from gpudiag.knowledge.messages.memory import DEVICE_FULL, JAX_AT_WORK, JAX_FULL, TORCH_AT_WORK, TORCH_FULL
from gpudiag.log import Log
from gpudiag.model import Broken
from gpudiag.scope import IDLE_BYTES, gpus_in_scope

ROOM_BYTES = 1 << 30
"""Free memory in which a CUDA context fits."""
GROW = (
    "for gpu in tf.config.list_physical_devices('GPU'): tf.config.experimental.set_memory_growth(gpu, True)"
    "  # before the first operation"
)
GROW_BY_VARIABLE = "export TF_FORCE_GPU_ALLOW_GROWTH=true  # the same with no change to the program"
OF_FRAMEWORKS = (JAX_FULL, TORCH_FULL, JAX_AT_WORK, TORCH_AT_WORK)


def gib(size: float) -> str:
    return f"{size / (1 << 30):.1f} GiB"


def devices_in_scope(evidence: Evidence) -> tuple[NvmlDevice, ...]:
    """Return the GPUs in scope whose memory NVML tells; it does not tell that of a single MIG instance."""
    chosen = {gpu.pci_bus_id for gpu in gpus_in_scope(evidence.facts)}
    return tuple(
        device
        for device in evidence.facts.nvml_devices
        if device.pci_bus_id in chosen and device.memory_total_bytes and device.mig_mode != "enabled"
    )


def free_bytes(device: NvmlDevice) -> int:
    return device.memory_total_bytes - device.memory_used_bytes


def holders(device: NvmlDevice) -> str:
    """Say who holds memory of a GPU."""
    known = [
        f"{'process' if one.computes else 'the drawing process'} {one.pid} holds "
        + ("some, NVML does not tell how much" if one.used_bytes is None else gib(one.used_bytes))
        for one in sorted(device.processes, key=lambda one: -(one.used_bytes or 0))
    ]
    if not known and device.memory_used_bytes > IDLE_BYTES:
        known = ["a process that NVML does not list holds the rest"]
    return "; ".join(
        [f"GPU {device.index}: {gib(free_bytes(device))} of {gib(device.memory_total_bytes)} free", *known]
    )


def checked(evidence: Evidence, message: Message) -> tuple[str, ...]:
    """Return who said ``message`` of what discovery's probes, which fill no memory, met."""
    met = []
    for row in evidence.rows:
        if row.area == "discovery":
            met += [row.outcome.detail] if isinstance(row.outcome, Broken) else [one.message for one in row.findings]
            met += row.log if isinstance(row.outcome, Broken) or row.findings else ()
    return Log(met).said(message, most=1)


def shared_otherwise(evidence: Evidence) -> bool:
    """Return True where the log shows who it shares the GPU with: another framework, or other workers of its tests."""
    return evidence.program.first(*OF_FRAMEWORKS) is not None or evidence.program.workers > 1


def refused_with_room(evidence: Evidence) -> tuple[str, ...]:
    """Return the refusals that discovery's probes met for want of memory, where NVML shows room on every GPU."""
    devices = devices_in_scope(evidence)
    room = bool(devices) and all(
        free_bytes(device) > max(ROOM_BYTES, device.memory_total_bytes / 2) for device in devices
    )
    return checked(evidence, DEVICE_FULL) if room else ()
