"""CUDA_VISIBLE_DEVICES selects other GPUs than meant: CUDA numbers them in another order than nvidia-smi

CUDA counts the fastest GPU first, nvidia-smi counts in PCI order. On a machine with unequal cards the same number names
two GPUs: a program runs on another card than the one that nvidia-smi shows under that number.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.visibility import MASK, PROGRAMMING_GUIDE
from gpudiag.fix import Role, export
from gpudiag.model.facts import Facts, NvmlDevice
from gpudiag.model.report import Severity
from gpudiag.model.visibility import apply_mask, indices_are_ambiguous, mask_in_force

CAUSE = Cause(
    title="CUDA_VISIBLE_DEVICES={value!r} selects {shown}, not {meant}: CUDA numbers the GPUs in another order than "
    "nvidia-smi",
    severity=Severity.WARNING,
    fix=(
        export("CUDA_DEVICE_ORDER", "PCI_BUS_ID", "makes CUDA count as nvidia-smi does"),
        export(
            "CUDA_VISIBLE_DEVICES",
            "{uuids}",
            "selects the GPUs that have these numbers in nvidia-smi, whatever CUDA's order",
            role=Role.ALTERNATIVE,
        ),
    ),
    url=PROGRAMMING_GUIDE,
)


def find(facts: Facts) -> Matches:
    value = facts.variables.get(MASK)
    if value is None or not indices_are_ambiguous(facts.variables, facts.nvml_devices):
        return
    by_place, by_cuda = apply_mask(value, facts.nvml_devices), mask_in_force(facts)
    if by_place.devices != by_cuda.devices:
        yield Match(
            (f"{MASK}={value!r}, CUDA_DEVICE_ORDER is not PCI_BUS_ID", f"CUDA shows {_named(by_cuda.devices)}"),
            figures={
                "value": value,
                "shown": _numbers(by_cuda.devices),
                "meant": _numbers(by_place.devices),
                "uuids": ",".join(by_place.uuids),
            },
            tried=CAUSE.fix[0],
        )


def _named(devices: tuple[NvmlDevice, ...]) -> str:
    return ", ".join(f"{device.name} ({device.pci_bus_id})" for device in devices)


def _numbers(devices: tuple[NvmlDevice, ...]) -> str:
    return f"GPU {','.join(str(device.index) for device in devices)} of nvidia-smi"
