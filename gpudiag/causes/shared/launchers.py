"""Shared by causes: launchers' variables about the processes that they start on this machine."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from gpudiag.cause import Evidence
from gpudiag.model.facts import Facts, Unknown


@dataclass(frozen=True)
class Launcher:
    """The launcher that started this process and others on this machine by one command."""

    name: str
    processes: int
    """How many processes were started on this machine."""
    variable: str
    """The variable with this number."""

    @classmethod
    def of(cls, evidence: Evidence) -> Launcher | None:
        """Return the launcher; the innermost, if one starts another (mpirun in a Slurm job)."""
        return cls.in_variables(evidence.facts.variables)

    @classmethod
    def in_variables(cls, variables: Mapping[str, str]) -> Launcher | None:
        for name, variable in _LAUNCHERS.items():
            if found := re.match(r"\d{1,6}", variables.get(variable, "")):
                return cls(name, int(found[0]), variable) if int(found[0]) > 1 else None
        return None


_LAUNCHERS = {
    "Horovod": "HOROVOD_LOCAL_SIZE",
    "torchrun": "LOCAL_WORLD_SIZE",
    "Open MPI": "OMPI_COMM_WORLD_LOCAL_SIZE",
    "MVAPICH": "MV2_COMM_WORLD_LOCAL_SIZE",
    "Hydra (MPICH, Intel MPI)": "MPI_LOCALNRANKS",
    "Slurm": "SLURM_STEP_TASKS_PER_NODE",
}
"""Launchers, with the variable for the number of processes. Slurm's is that of a step (srun): a job's script runs
once."""


_RANKS = (
    "LOCAL_RANK",
    "HOROVOD_LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MV2_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "SLURM_LOCALID",
    "PYTEST_XDIST_WORKER",
)


@dataclass(frozen=True)
class LocalRank:
    """The number of this process among those that its launcher started on this machine."""

    variable: str
    """The variable with this rank."""
    number: int

    @classmethod
    def of(cls, evidence: Evidence) -> LocalRank | None:
        return cls.in_variables(evidence.facts.variables)

    @classmethod
    def in_variables(cls, variables: Mapping[str, str]) -> LocalRank | None:
        for name in _RANKS:
            if found := re.fullmatch(r"(?:gw)?(\d{1,6})", variables.get(name, "")):
                return cls(name, int(found[1]))
        return None


def allocated_by(facts: Facts) -> str:
    """Return the variable with the GPUs that Slurm gave this step, or else the job, or with Torque's file."""
    if not isinstance(facts.container, Unknown) and facts.container.job_gpus:
        return "PBS_GPUFILE"
    return "SLURM_STEP_GPUS" if facts.variables.get("SLURM_STEP_GPUS") else "SLURM_JOB_GPUS"


def allocated(facts: Facts) -> tuple[int, ...] | None:
    """Return the GPUs that Slurm gave this step, or else the job, or Torque, by their numbers on the node; None: not
    known."""
    if not isinstance(facts.container, Unknown) and facts.container.job_gpus:
        return facts.container.job_gpus
    text = facts.variables.get(allocated_by(facts)) or ""
    if not re.fullmatch(r"\d{1,3}(-\d{1,3})?(,\d{1,3}(-\d{1,3})?)*", text):
        return None
    numbers: list[int] = []
    for entry in text.split(","):
        first, _, last = entry.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return tuple(numbers)
