"""some GPUs are in MIG mode and some are not: CUDA shows a process whole GPUs, or one MIG instance alone

CUDA enumerates a single MIG instance, and no whole GPU beside it, whatever CUDA_VISIBLE_DEVICES names (MIG User
Guide, CUDA Device Enumeration). So nvidia-smi shows more than TensorFlow lists, on a healthy machine.
Which of them a list of both shows is not documented: name one kind.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.visibility import MASK, MIG_GUIDE, units
from gpudiag.fix import Role, export
from gpudiag.model.facts import Facts
from gpudiag.model.report import Severity
from gpudiag.probes.discovery import trace
from gpudiag.text import counted

CAUSE = Cause(
    severity=Severity.WARNING,
    fix=(
        export("CUDA_VISIBLE_DEVICES", "{whole}", "whole GPUs"),
        export(
            "CUDA_VISIBLE_DEVICES",
            "{instance}",
            "or use one MIG instance, with a process for each",
            role=Role.ALTERNATIVE,
        ),
    ),
    url=MIG_GUIDE,
)


def find(facts: Facts, traced: trace.Reading | None) -> Matches:
    whole, instances = units(facts)
    if whole and instances:
        value = facts.variables.get(MASK)
        seen = [f"TensorFlow lists {counted(traced.listed, 'GPU')}"] if traced else []
        devices = facts.nvml_devices
        modes = (f"GPU {device.index}: MIG {len(device.mig_uuids) or 'off'}" for device in devices)
        yield Match(
            evidence=(f"{MASK}={value!r}" if value is not None else f"{MASK} is not set", ", ".join(modes), *seen),
            figures={"whole": ",".join(whole), "instance": instances[0]},
        )
