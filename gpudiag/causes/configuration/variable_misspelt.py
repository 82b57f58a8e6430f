"""nothing reads a variable whose name is probably misspelled

TensorFlow, the CUDA driver and NVIDIA's libraries read only the variables that they know, so that a misspelt name
causes no error.
"""

from __future__ import annotations

import shlex

from gpudiag.cause import Cause, Match, Matches, Variables
from gpudiag.fix import Action, Kind, export, note, run, unset
from gpudiag.knowledge.variables import WITHHELD, misspelling_of
from gpudiag.model.facts import Facts
from gpudiag.model.report import Severity
from gpudiag.model.visibility import apply_mask

CAUSE = Cause(
    title="nothing reads the variable {name}; probably {known} is meant",
    severity=Severity.WARNING,
    fix=(export("CUDA_VISIBLE_DEVICES", "0"), unset("CUDA_VISIBLE_DEVCIES")),
    url="https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-environment-variables",
    needs_gpu=False,
    finding="host.environment.misspelt",
)


GROWTH = "TF_FORCE_GPU_ALLOW_GROWTH"
_OF_GROWTH = "https://www.tensorflow.org/guide/gpu#limiting_gpu_memory_growth"


def find(facts: Facts, variables: Variables) -> Matches:
    for name, value in variables.items():
        if known := misspelling_of(name):
            evidence = [f"{name} is set" if value == WITHHELD else f"{name}={value!r}"]
            away = (
                unset(name)
                if name.isidentifier()
                else note(f"take {name} out of the file that sets it: a shell cannot unset such a name")
            )
            if is_set := known in facts.variables:
                evidence.append(f"{known}={facts.variables[known]!r} is set as well, and holds")
            yield Match(
                evidence=tuple(evidence),
                figures={"name": name, "value": value, "known": known},
                fix=(away,) if is_set else (_cure(name, known, facts), away),
                url=_OF_GROWTH if known == GROWTH else "",
            )


def _cure(name: str, known: str, facts: Facts) -> Action:
    """Return how to set ``known`` in place of ``name``; a sentence if the value would not be valid for it."""
    value = facts.variables[name]
    if known == GROWTH and value.lower() in ("1", "true", "yes", "on"):
        return export(known, "true")
    if value == WITHHELD:
        return run(f'export {known}="${name}"', kind=Kind.SET_VARIABLE)
    gpus = facts.nvml_devices
    if known == "CUDA_VISIBLE_DEVICES" and gpus and not apply_mask(value, gpus).devices:
        valid = f"0 to {len(gpus) - 1}" if len(gpus) > 1 else "0"
        return note(f"{value!r} names no GPU of this machine, so {known} would hide all; valid indices: {valid}")
    return export(known, f"{shlex.quote(value)}")
