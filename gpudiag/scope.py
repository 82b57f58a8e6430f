"""Which GPUs are in scope: those that NVML reports and the caller's ``CUDA_VISIBLE_DEVICES`` lets through.

NVML ignores that variable, so its rules are applied here as the CUDA driver applies them (CUDA Programming Guide).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from gpudiag.hostfacts import Facts, NvmlDevice
from gpudiag.model import Gpu
from gpudiag.record import Record

IDLE_BYTES = 1 << 30
"""More than an idle GPU's own use: the driver reserves up to about 600 MiB (H100, by nvidia-smi)."""


class Mask(Record):
    """What a value of ``CUDA_VISIBLE_DEVICES`` means on a machine."""

    devices: tuple[NvmlDevice, ...]
    """The visible GPUs, in the order in which CUDA numbers them."""
    uuids: tuple[str, ...]
    """What names each of them to CUDA: its UUID, or that of the one MIG instance the mask lets through."""
    ignored: tuple[str, ...]
    """Entries without effect: the list ends at the first invalid one, and a duplicate makes all of it void."""


def apply_mask(value: str | None, devices: tuple[NvmlDevice, ...]) -> Mask:
    """Return what ``CUDA_VISIBLE_DEVICES=value`` leaves visible of ``devices`` (None: not set, so all of them).

    An entry is an index or the UUID of a GPU or MIG instance, or a prefix that matches only one. Indices count
    ``devices`` as NVML does, in PCI order; see :func:`index_is_ambiguous` for when CUDA may count otherwise.
    """
    chosen, ignored = _entries(value, devices)
    return _mask(chosen, ignored)


def choices(value: str | None, devices: tuple[NvmlDevice, ...]) -> dict[str, NvmlDevice]:
    """Return what processes of their own may each be given of ``CUDA_VISIBLE_DEVICES=value``: UUID to GPU, in order.

    Several MIG instances of one GPU are several choices, although one process can use only one of them.
    """
    if value is None:
        return {uuid: device for device in devices for uuid in device.mig_uuids or (device.uuid,)}
    return _entries(value, devices)[0]


def gpus_in_scope(facts: Facts) -> tuple[Gpu, ...]:
    """Return the GPUs in scope, in the order in which CUDA numbers them; empty where NVML could not be asked."""
    mask = apply_mask(facts.variables.get("CUDA_VISIBLE_DEVICES"), facts.nvml_devices)
    return tuple(map(Gpu.of, mask.devices, mask.uuids))


def other_use(gpu: Gpu, facts: Facts) -> str | None:
    """Return who else computes on ``gpu``, or None where nobody does as far as NVML tells.

    Where it lists no process (in containers it often does not), more memory in use than an idle GPU's own tells.
    """
    for device in facts.nvml_devices:
        if device.pci_bus_id == gpu.pci_bus_id:
            pids = [process.pid for process in device.processes if process.computes]
            if pids:
                return f"process {pids[0]}" + (f" and {len(pids) - 1} more" if len(pids) > 1 else "")
            if not device.processes and device.memory_used_bytes > IDLE_BYTES:
                return f"a process that NVML does not list ({device.memory_used_bytes / (1 << 30):.1f} GiB in use)"
    return None


def index_is_ambiguous(facts: Facts) -> bool:
    """Return True where an index in ``CUDA_VISIBLE_DEVICES`` cannot be tied to a GPU.

    Unless ``CUDA_DEVICE_ORDER=PCI_BUS_ID``, CUDA counts the fastest GPU first, and which of unequal cards that is
    cannot be learnt from NVML. Masks by UUID are exact.
    """
    return indices_are_ambiguous(facts.variables, facts.nvml_devices)


def indices_are_ambiguous(variables: Mapping[str, str], devices: tuple[NvmlDevice, ...]) -> bool:
    """As :func:`index_is_ambiguous`, of an environment's ``variables`` and the GPUs that NVML reports."""
    indices = re.search(r"(?:^|,)\s*\+?\d", variables.get("CUDA_VISIBLE_DEVICES", ""))
    unequal = len({device.name for device in devices}) > 1
    return bool(indices) and unequal and variables.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID"


def _entries(value: str | None, devices: tuple[NvmlDevice, ...]) -> tuple[dict[str, NvmlDevice], tuple[str, ...]]:
    """Return what a mask names, UUID to GPU in its order, and the entries without effect."""
    if value is None:
        return {device.uuid: device for device in devices}, ()
    entries = [entry.strip() for entry in value.split(",")]
    chosen: dict[str, NvmlDevice] = {}
    for position, entry in enumerate(entries):
        found = _resolve(entry, devices)
        if found is None:
            return chosen, tuple(filter(None, entries[position:]))
        uuid, device = found
        if uuid in chosen:
            return {}, tuple(entries)
        chosen[uuid] = device
    return chosen, ()


def _resolve(entry: str, devices: tuple[NvmlDevice, ...]) -> tuple[str, NvmlDevice] | None:
    """Return the UUID that ``entry`` names (of a GPU or of a MIG instance) and its GPU, or None if it is invalid."""
    if entry.startswith(("GPU-", "MIG-")):
        named = [(uuid, gpu) for gpu in devices for uuid in (gpu.uuid, *gpu.mig_uuids) if uuid.startswith(entry)]
        return named[0] if len(named) == 1 else None
    # The driver reads indices as strtol does: "+1", "01" and "1a" are all 1.
    number = re.match(r"[+-]?\d+", entry)
    index = int(number[0]) if number else -1
    return (devices[index].uuid, devices[index]) if 0 <= index < len(devices) else None


def _mask(chosen: dict[str, NvmlDevice], ignored: tuple[str, ...] = ()) -> Mask:
    """Return the mask that lets ``chosen`` through; of several MIG instances on one GPU CUDA shows the first."""
    first: dict[str, tuple[str, NvmlDevice]] = {}
    for uuid, device in chosen.items():
        first.setdefault(device.uuid, (uuid, device))
    return Mask(
        devices=tuple(device for _, device in first.values()),
        uuids=tuple(uuid for uuid, _ in first.values()),
        ignored=ignored,
    )
