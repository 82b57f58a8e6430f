"""GPUs in scope that are known to exist but cannot be used.

Such a GPU has no row: what was verified on the others says nothing about it.
"""

from __future__ import annotations

import re

from gpudiag.model.facts import Facts, NvmlDevice, Unknown

_NVIDIA = "nvidia"
"""The kernel driver of the GPUs that NVML counts; a GPU with any other driver is used for something else."""


def missing_gpus(facts: Facts) -> tuple[str, ...]:
    """Return a sentence for each GPU, or group of GPUs, that is known to be missing."""
    lost = [f"GPU {index} does not answer NVML: {why}" for index, why in lost_gpus(facts).items()]
    uncounted = uncounted_gpus(facts)
    if not uncounted:
        return tuple(lost)
    return (*lost, f"NVML does not report every NVIDIA GPU on the PCI bus; missing: {', '.join(uncounted)}")


def lost_gpus(facts: Facts) -> dict[int, str]:
    """Return the GPUs in scope that NVML counts but cannot describe: index to the reason."""
    if isinstance(facts.nvml, Unknown):
        return {}
    mask, more = _named(facts)
    return {index: why for index, why in facts.nvml.undescribed.items() if mask is None or more or index in mask}


def uncounted_gpus(facts: Facts) -> tuple[str, ...]:
    """Return the GPUs on the PCI bus that NVML does not count, no other driver holds and no setting excludes, if they
    are in scope.

    In a container and in a Slurm job the bus also shows GPUs that were given to others.
    """
    nvml, nodes, container = facts.nvml, facts.device_nodes, facts.container
    if isinstance(nvml, Unknown) or isinstance(nodes, Unknown):
        return ()
    if not isinstance(container, Unknown) and (container.name is not None or container.slurm_job is not None):
        return ()
    mask, more = _named(facts)
    excluded = () if isinstance(facts.kernel, Unknown) else facts.kernel.excluded
    counted = {pci.lower() for pci in (*(device.pci_bus_id for device in nvml.devices), *excluded)}
    rest = [
        pci
        for pci in nodes.pci_gpus
        if pci.lower() not in counted and nodes.bound.get(pci, _NVIDIA).startswith(_NVIDIA)
    ]
    # NVML does not say where the GPUs are that it cannot describe: they are among these.
    return tuple(rest) if len(rest) > len(nvml.undescribed) and (mask is None or more) else ()


def working_brothers(facts: Facts, gpu: str) -> tuple[NvmlDevice, ...]:
    """Return the GPUs that NVML counts and that are of the same model as ``gpu`` (a PCI bus id), which it does not.

    The driver, its settings and the kind of its module are those that run these, so none of them is at fault. If the
    PCI device numbers are not known, several GPUs that are all of one model say that the missing one most likely is.
    """
    devices, nodes = facts.nvml_devices, facts.device_nodes
    models = {} if isinstance(nodes, Unknown) else nodes.models
    if any(device.pci_bus_id == gpu for device in devices):
        return ()
    if gpu in models:
        return tuple(device for device in devices if models.get(device.pci_bus_id) == models[gpu])
    return devices if len(devices) > 1 and len({device.name for device in devices}) == 1 else ()


def _named(facts: Facts) -> tuple[set[int] | None, bool]:
    """Return the indices that ``CUDA_VISIBLE_DEVICES`` names (None: not set), and whether it names an unknown GPU.

    The list ends at an entry that names no GPU at all, such as -1.
    """
    value = facts.variables.get("CUDA_VISIBLE_DEVICES")
    if value is None:
        return None, False
    devices = facts.nvml_devices
    uuids = [uuid for device in devices for uuid in (device.uuid, *device.mig_uuids)]
    indices: set[int] = set()
    for entry in map(str.strip, value.split(",")):
        number = re.match(r"\+?\d{1,9}", entry)
        if number is not None:
            indices.add(int(number[0]))
            if int(number[0]) >= len(devices):
                return indices, True
        elif not entry.startswith(("GPU-", "MIG-")):
            break
        elif not any(uuid.startswith(entry) for uuid in uuids):
            return indices, True
    return indices, False
