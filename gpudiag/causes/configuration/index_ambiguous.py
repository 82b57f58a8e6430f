"""CUDA counts the fastest GPU first, nvidia-smi in PCI order: the same number may name different GPUs

CUDA_DEVICE_ORDER decides how CUDA counts, and its default is FASTEST_FIRST. On a machine with equal GPUs both orders
are the same.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.visibility import MASK
from gpudiag.fix import export
from gpudiag.model.facts import Facts, Unknown
from gpudiag.model.report import Severity
from gpudiag.model.visibility import index_is_ambiguous

CAUSE = Cause(
    title="CUDA_VISIBLE_DEVICES={value!r} counts the fastest GPU first, nvidia-smi counts in PCI order: with unequal"
    " GPUs the same number can name another one",
    severity=Severity.NOTE,
    fix=(export("CUDA_DEVICE_ORDER", "PCI_BUS_ID", "or list UUIDs as nvidia-smi -L prints them"),),
    url="https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-environment-variables",
    finding="host.environment.ambiguous_index",
    row_only=True,
)


def find(facts: Facts) -> Matches:
    cuda, value = facts.cuda, facts.variables.get(MASK)
    shown = not isinstance(cuda, Unknown) and bool(cuda.uuids)
    if value is not None and facts.nvml_devices and not shown and index_is_ambiguous(facts):
        yield Match(evidence=(f"{MASK}={value!r}",), figures={"value": value})
