"""Which GPUs are in scope: those that NVML reports and the caller's ``CUDA_VISIBLE_DEVICES`` lets through.

NVML ignores that variable, so its rules are applied here as the CUDA driver applies them (CUDA Programming Guide).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec.structs import replace

from gpudiag.model.facts import Facts, NvmlDevice, Unknown
from gpudiag.model.report import Gpu
from gpudiag.record import Record

IDLE_BYTES = 1 << 30
"""Memory use above which a GPU is not idle: the driver itself reserves up to about 600 MiB (H100, by nvidia-smi)."""


class Mask(Record):
    """The meaning of a value of ``CUDA_VISIBLE_DEVICES`` on a machine."""

    devices: tuple[NvmlDevice, ...]
    """The visible GPUs, in the order in which CUDA numbers them."""
    uuids: tuple[str, ...]
    """The identifiers of the visible GPUs in CUDA: the UUID of each, or of the one MIG instance that the mask lets
    through."""
    ignored: tuple[str, ...]
    """Entries without effect: the list ends at the first invalid one, and a duplicate voids all of it."""
    twice: str = ""
    """The entry that names a GPU or instance for the second time; CUDA shows no GPU at all then."""
    beside: tuple[str, ...] = ()
    """UUIDs that the mask names but CUDA does not show: a process has whole GPUs, or a single MIG instance."""


def apply_mask(value: str | None, devices: tuple[NvmlDevice, ...]) -> Mask:
    """Return which of ``devices`` ``CUDA_VISIBLE_DEVICES=value`` leaves visible (None: not set, so all of them).

    An entry is an index or the UUID of a GPU or MIG instance, or a prefix that matches only one. Indices count
    ``devices`` as NVML does, in PCI order; :func:`mask_in_force` handles other orders of CUDA. A GPU in MIG mode that
    is named as a whole is its first instance.

    "CUDA can only enumerate a single compute instance", and "will not enumerate non-MIG GPU if any compute instance is
    enumerated on any other GPU" (MIG User Guide, CUDA Device Enumeration). It does not say which of them a mixed list
    shows. Here the first entry decides; :func:`least_visible` does not rely on this.
    """
    named, ignored, twice = _entries(value, devices)
    shown = for_one_process(tuple(named))
    return Mask(
        devices=tuple(named[uuid] for uuid in shown),
        uuids=shown,
        ignored=ignored,
        twice=twice,
        beside=tuple(uuid for uuid in named if uuid not in shown),
    )


def for_one_process(uuids: tuple[str, ...]) -> tuple[str, ...]:
    """Return those ``uuids`` that one process sees. The first decides: a MIG instance alone, or all whole GPUs."""
    if uuids and _is_instance(uuids[0]):
        return uuids[:1]
    return tuple(uuid for uuid in uuids if not _is_instance(uuid))


def choices(value: str | None, devices: tuple[NvmlDevice, ...]) -> dict[str, NvmlDevice]:
    """Return the devices of ``CUDA_VISIBLE_DEVICES=value`` that separate processes may get: UUID to GPU, in order.

    Several MIG instances of one GPU are several choices, although one process can use only one of them.
    """
    if value is None:
        return {uuid: device for device in devices for uuid in device.mig_uuids or (device.uuid,)}
    return _entries(value, devices)[0]


def mask_in_force(facts: Facts) -> Mask:
    """Return the GPUs that the caller's ``CUDA_VISIBLE_DEVICES`` leaves visible; none if NVML could not be asked.

    If indices are ambiguous, the GPUs are those that the CUDA driver itself shows.
    """
    mask = apply_mask(facts.variables.get("CUDA_VISIBLE_DEVICES"), facts.nvml_devices)
    shown = _shown_by_cuda(facts)
    # If the numbers differ, a GPU that the driver leaves out stays in scope, so that it is reported as missing.
    if len(shown) != len(mask.devices):
        return mask
    return replace(mask, devices=tuple(shown.values()), uuids=tuple(shown))


def gpus_in_scope(facts: Facts) -> tuple[Gpu, ...]:
    """Return the GPUs in scope, in the order in which CUDA numbers them; empty if NVML could not be asked."""
    mask = mask_in_force(facts)
    return tuple(map(Gpu.of, mask.devices, mask.uuids))


def least_visible(facts: Facts) -> int:
    """Return how many GPUs CUDA shows at least: one if the mask names both whole GPUs and MIG instances."""
    mask = mask_in_force(facts)
    mixed = len({_is_instance(uuid) for uuid in (*mask.uuids, *mask.beside)}) > 1
    return 1 if mixed else len(mask.devices)


def other_use(gpu: Gpu, facts: Facts) -> str | None:
    """Return which other process computes on ``gpu``, or None if NVML shows none.

    If it lists no process (in containers it often does not), memory in use beyond that of an idle GPU shows one.
    """
    for device in facts.nvml_devices:
        if device.pci_bus_id == gpu.pci_bus_id:
            computing = [process for process in device.processes if process.computes]
            if computing:
                first = computing[0]
                who = f" ({first.holder.words})" if first.holder is not None and first.holder.words else ""
                return f"process {first.pid}{who}" + (f" and {len(computing) - 1} more" if computing[1:] else "")
            if not device.processes and device.memory_used_bytes > IDLE_BYTES:
                return f"a process that NVML does not list ({device.memory_used_bytes / (1 << 30):.1f} GiB in use)"
    return None


def index_is_ambiguous(facts: Facts) -> bool:
    """Return True if it is not known which GPU an index in ``CUDA_VISIBLE_DEVICES`` means.

    Unless ``CUDA_DEVICE_ORDER=PCI_BUS_ID``, CUDA counts the fastest GPU first, and NVML does not say which of several
    different cards is the fastest; only the CUDA driver does. Masks by UUID are exact.
    """
    if not indices_are_ambiguous(facts.variables, facts.nvml_devices):
        return False
    named = apply_mask(facts.variables.get("CUDA_VISIBLE_DEVICES"), facts.nvml_devices).devices
    return not named or len(_shown_by_cuda(facts)) != len(named)


def indices_are_ambiguous(variables: Mapping[str, str], devices: tuple[NvmlDevice, ...]) -> bool:
    """Return True if indices are ambiguous (see :func:`index_is_ambiguous`) for ``variables`` and NVML's GPUs."""
    unequal = len({device.name for device in devices}) > 1
    indices = has_indices(variables.get("CUDA_VISIBLE_DEVICES", ""))
    return indices and unequal and variables.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID"


def has_indices(mask: str) -> bool:
    """Return True if a value of ``CUDA_VISIBLE_DEVICES`` names a GPU by its index."""
    return bool(re.search(r"(?:^|,)\s*\+?\d", mask))


def _shown_by_cuda(facts: Facts) -> dict[str, NvmlDevice]:
    """Return the GPUs that the CUDA driver shows under the mask in force: UUID to GPU; empty if it was not asked."""
    cuda = facts.cuda
    if isinstance(cuda, Unknown) or cuda.mask is None or cuda.mask != facts.variables.get("CUDA_VISIBLE_DEVICES"):
        return {}
    units = {uuid: device for device in facts.nvml_devices for uuid in (device.uuid, *device.mig_uuids)}
    return {uuid: units[uuid] for uuid in cuda.uuids if uuid in units}


def _entries(value: str | None, devices: tuple[NvmlDevice, ...]) -> tuple[dict[str, NvmlDevice], tuple[str, ...], str]:
    """Return a mask's devices, UUID to GPU in its order; the entries without effect; and one that voids all."""
    if value is None:
        return {_first_unit(device): device for device in devices}, (), ""
    entries = [entry.strip() for entry in value.split(",")]
    chosen: dict[str, NvmlDevice] = {}
    for position, entry in enumerate(entries):
        found = _resolve(entry, devices)
        if found is None:
            return chosen, tuple(filter(None, entries[position:])), ""
        uuid, device = found
        if uuid in chosen:
            return {}, tuple(entries), entry
        chosen[uuid] = device
    return chosen, (), ""


def _resolve(entry: str, devices: tuple[NvmlDevice, ...]) -> tuple[str, NvmlDevice] | None:
    """Return the UUID that ``entry`` names (of a GPU or of a MIG instance) and its GPU, or None if it is invalid."""
    if entry.startswith(("GPU-", "MIG-")):
        named = [(uuid, gpu) for gpu in devices for uuid in (gpu.uuid, *gpu.mig_uuids) if uuid.startswith(entry)]
        if len(named) != 1:
            return None
        [(uuid, gpu)] = named
        return (_first_unit(gpu) if uuid == gpu.uuid else uuid), gpu
    # The driver reads indices as strtol does: "+1", "01" and "1a" are all 1.
    number = re.match(r"[+-]?\d+", entry)
    index = int(number[0]) if number else -1
    return (_first_unit(devices[index]), devices[index]) if 0 <= index < len(devices) else None


def _first_unit(device: NvmlDevice) -> str:
    """Return the UUID that CUDA shows for ``device``: of the GPU, or of its first MIG instance."""
    return device.mig_uuids[0] if device.mig_uuids else device.uuid


def _is_instance(uuid: str) -> bool:
    return uuid.startswith("MIG-")
