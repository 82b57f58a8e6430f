"""Shared by causes: memory that other processes hold, or that is less than a program assumes."""

from __future__ import annotations

from gpudiag.cause import Program, Rows
from gpudiag.fix import edit, export
from gpudiag.knowledge.log_lines import Log
from gpudiag.knowledge.message import Message
from gpudiag.knowledge.messages.memory import DEVICE_FULL, JAX_AT_WORK, JAX_FULL, TORCH_AT_WORK, TORCH_FULL
from gpudiag.knowledge.tensorflow_api import GROWTH_FOR_EACH
from gpudiag.model.facts import Facts, NvmlDevice, ProcessIdentity
from gpudiag.model.report import Broken
from gpudiag.model.visibility import IDLE_BYTES, gpus_in_scope

ROOM_BYTES = 1 << 30
"""The free memory that a CUDA context needs."""
_HANDLE_BYTES = 500 << 20
"""The memory that cuBLAS and cuDNN need beside TensorFlow's pool, roughly."""
GROW = edit(GROWTH_FOR_EACH, "before the first operation")
GROW_BY_VARIABLE = export("TF_FORCE_GPU_ALLOW_GROWTH", "true", "the same with no change to the program")
OF_FRAMEWORKS = (JAX_FULL, TORCH_FULL, JAX_AT_WORK, TORCH_AT_WORK)


def gib(size: float) -> str:
    return f"{size / (1 << 30):.1f} GiB"


def devices_in_scope(facts: Facts) -> tuple[NvmlDevice, ...]:
    """Return the GPUs in scope whose memory NVML reports; it does not report that of a single MIG instance."""
    chosen = {gpu.pci_bus_id for gpu in gpus_in_scope(facts)}
    return tuple(
        device
        for device in facts.nvml_devices
        if device.pci_bus_id in chosen and device.memory_total_bytes and device.mig_mode != "enabled"
    )


def free_bytes(device: NvmlDevice) -> int:
    return device.memory_total_bytes - device.memory_used_bytes


def holders(device: NvmlDevice) -> str:
    """Return who holds memory of a GPU, in words."""
    known = [
        f"{'process' if process.computes else 'the drawing process'} {process.pid}{_who(process.holder)} holds "
        + ("some, NVML does not report how much" if process.used_bytes is None else gib(process.used_bytes))
        for process in sorted(device.processes, key=lambda candidate: -(candidate.used_bytes or 0))
    ]
    if not known and device.opened_by:
        known = [
            f"NVML lists nobody; process {process.pid}{_who(process.holder)} has its device file open"
            for process in device.opened_by
        ]
    elif not known and device.memory_used_bytes > IDLE_BYTES:
        known = ["a process that NVML does not list holds the rest"]
    return "; ".join(
        [f"GPU {device.index}: {gib(free_bytes(device))} of {gib(device.memory_total_bytes)} free", *known]
    )


def _who(holder: ProcessIdentity | None) -> str:
    return f" ({holder.words})" if holder is not None and holder.words else ""


def checked(rows: Rows, message: Message) -> tuple[str, ...]:
    """Return the failures with ``message`` in probes that fill no memory."""
    met = []
    for row in rows:
        if row.area in ("discovery", "libraries"):
            met += (
                [row.outcome.detail]
                if isinstance(row.outcome, Broken)
                else [finding.message for finding in row.findings]
            )
            met += row.log if isinstance(row.outcome, Broken) or row.findings else ()
    return Log(met).said(message, most=1)


def shared_otherwise(program: Program) -> bool:
    """Return True if the log names others on the GPU: another framework, or other workers of a test run."""
    return program.first(*OF_FRAMEWORKS) is not None or program.workers > 1


def refused_with_room(facts: Facts, rows: Rows) -> tuple[str, ...]:
    """Return out-of-memory errors in discovery's probes, if NVML shows free memory on every GPU."""
    devices = devices_in_scope(facts)
    room = bool(devices) and all(
        free_bytes(device) > max(ROOM_BYTES, device.memory_total_bytes / 2) for device in devices
    )
    return checked(rows, DEVICE_FULL) if room else ()


def tight(facts: Facts) -> tuple[NvmlDevice, ...]:
    """Return the GPUs in scope that have too little memory free for libraries of NVIDIA's to start."""
    return tuple(device for device in devices_in_scope(facts) if free_bytes(device) < _least(device))


def _least(device: NvmlDevice) -> int:
    """Return how much of a GPU has to be free for its libraries to start, roughly.

    Beside a display or another program TensorFlow's pool and the libraries share what is left. The bound was chosen,
    not measured: the few public reports of it are of cards of 2 to 4 GiB with 1 to 2 GiB free.
    """
    return _HANDLE_BYTES if device.memory_used_bytes <= IDLE_BYTES else 2 * ROOM_BYTES


def free_share(log: Log) -> float | None:
    """Return how much of the GPU's memory was free when a library failed, from 0 to 1; None if no line says it."""
    shares = [int(event["free"]) / int(event["total"]) for event in log.events if event["free"] and event["total"]]
    return max(shares, default=None)


MOST_IS_FREE = 0.5
"""If a larger share of the memory was free, memory is not blamed for a library that did not start.

It was chosen, not measured: a pool that leaves a library too little has taken nearly all of the GPU."""
