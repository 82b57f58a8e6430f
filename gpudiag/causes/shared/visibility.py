"""Shared by causes: masks, Slurm and MIG."""

from __future__ import annotations

import re

from gpudiag.model.facts import Facts, Unknown
from gpudiag.model.visibility import gpus_in_scope, mask_in_force

MASK = "CUDA_VISIBLE_DEVICES"
OF_SLURM = "NoDevFiles"
"""Values that Slurm writes into the mask of a job step without GPUs."""
SLURM_GPUS = ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "SLURM_GPUS_ON_NODE", "SLURM_GPUS", "SLURM_GPUS_PER_NODE")


def names_gpus(value: str) -> bool:
    """Return True for a list of numbers or UUIDs of GPUs."""
    return all(re.fullmatch(r"\d+|(?:GPU|MIG)-[\w-]+", entry) for entry in value.split(","))


def slurm_job(facts: Facts) -> str | None:
    return None if isinstance(facts.container, Unknown) else facts.container.slurm_job


def hidden_by_slurm(facts: Facts) -> bool:
    """Return True if Slurm gave this step no GPU, so that unsetting the mask would take other jobs' GPUs."""
    given = any(facts.variables.get(name) for name in SLURM_GPUS)
    value = facts.variables.get(MASK)
    return slurm_job(facts) is not None and (value == OF_SLURM or (value == "" and not given))


def table(facts: Facts) -> str:
    """Return which GPU each of TensorFlow's names stands for."""
    names = [f"/GPU:{number} is GPU {gpu.index}" for number, gpu in enumerate(gpus_in_scope(facts))]
    return f"{', '.join(names)} of nvidia-smi" if names else "no GPU is visible here"


def units(facts: Facts) -> tuple[list[str], list[str]]:
    """Return the whole GPUs and the MIG instances that the mask names, whether CUDA shows them together or not."""
    mask = mask_in_force(facts)
    named = (*mask.uuids, *mask.beside)
    return [uuid for uuid in named if uuid.startswith("GPU-")], [uuid for uuid in named if uuid.startswith("MIG-")]


PROGRAMMING_GUIDE = "https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-environment-variables"
MIG_GUIDE = "https://docs.nvidia.com/datacenter/tesla/mig-user-guide/"
