"""several MIG instances are selected, but CUDA shows each process only the first

CUDA enumerates a single MIG instance in a process, however many CUDA_VISIBLE_DEVICES or the container names. So
TensorFlow lists one GPU, the rest stays idle, and MirroredStrategy has one replica.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.visibility import MASK, MIG_GUIDE, units
from gpudiag.fix import Kind, configure, run
from gpudiag.model.facts import Facts
from gpudiag.model.report import Severity
from gpudiag.probes.discovery import trace

CAUSE = Cause(
    title="{instances} MIG instances are selected, but CUDA shows each process only the first, {first}",
    severity=Severity.WARNING,
    fix=(
        run(
            "CUDA_VISIBLE_DEVICES={first} python program.py",
            "start one process for each instance",
            kind=Kind.SET_VARIABLE,
        ),
        configure("sudo nvidia-smi -mig 0", "or use the whole GPU, if one program needs all of the memory"),
    ),
    url=MIG_GUIDE,
)


def find(facts: Facts, traced: trace.Reading | None) -> Matches:
    variables = facts.variables
    masks = [
        [entry.strip() for entry in variables.get(name, "").split(",")] for name in (MASK, "NVIDIA_VISIBLE_DEVICES")
    ]
    masks = [[entry for entry in mask if entry.startswith("MIG-")] for mask in masks]
    whole, instances = units(facts)
    chosen = next((mask for mask in masks if len(mask) > 1), instances)
    listed = traced.listed if traced else 1
    if len(chosen) > 1 and listed == 1 and not whole:
        yield Match(
            evidence=(f"to be seen: {' '.join(chosen)}", f"TensorFlow lists {listed} GPU"),
            figures={"instances": len(chosen), "first": chosen[0]},
        )
