"""CUDA_VISIBLE_DEVICES has entries that CUDA ignores, and shows fewer GPUs than it names

The list ends at the first entry that names no GPU, and a GPU that is named twice makes all of it invalid. CUDA
reports neither. Indices count from 0.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.visibility import MASK, PROGRAMMING_GUIDE
from gpudiag.fix import export
from gpudiag.model.facts import Facts
from gpudiag.model.report import Severity
from gpudiag.model.visibility import choices, mask_in_force

CAUSE = Cause(
    title="CUDA_VISIBLE_DEVICES={value!r} shows {visible} of {gpus} GPUs; ignored entries: {ignored}",
    severity=Severity.WARNING,
    fix=(
        export(
            "CUDA_VISIBLE_DEVICES", "{right}", "name indices from 0 to {last}, or UUIDs of nvidia-smi -L, each once"
        ),
    ),
    url=PROGRAMMING_GUIDE,
    needs_gpu=False,
    finding="host.environment.entries_ignored",
    unless={
        "mask_entry_cut": "it names the entry that CUDA cuts, and how",
    },
)


def find(facts: Facts) -> Matches:
    value, gpus, mask = facts.variables.get(MASK), facts.nvml_devices, mask_in_force(facts)
    ignored = [entry for entry in mask.ignored if entry != "-1"]  # -1 ends a list on purpose
    if value is not None and gpus and mask.devices and ignored:
        named = (entry.strip() for entry in value.split(","))
        right = ",".join(dict.fromkeys(entry for entry in named if choices(entry, gpus)))
        yield Match(
            evidence=(f"{MASK}={value!r}", f"NVML reports {len(gpus)} GPUs"),
            figures={
                "value": value,
                "visible": len(mask.devices),
                "gpus": len(gpus),
                "ignored": ", ".join(ignored),
                "right": right,
                "last": len(gpus) - 1,
            },
            tried=CAUSE.fix[0],
        )
