"""CUDA_VISIBLE_DEVICES hides all GPUs of this machine

The CUDA driver, not TensorFlow, reads this variable, and ends the list at the first entry that names no GPU. An empty
value, -1, an index that does not exist, a word: each leaves no GPU, and cuInit then answers "no CUDA-capable device is
detected", as if there were none. It is often left in a .env file, a notebook, a CI configuration, or set by a scheduler
that gave the job no GPU. A file for `docker --env-file` keeps quotes, and `"0"` is not an index.
"""

from __future__ import annotations

import re

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.launchers import Launcher, LocalRank
from gpudiag.causes.shared.visibility import MASK, PROGRAMMING_GUIDE
from gpudiag.fix import Action, Role, export, note, unset
from gpudiag.model.facts import Facts
from gpudiag.model.report import Severity
from gpudiag.model.visibility import apply_mask
from gpudiag.text import counted

CAUSE = Cause(
    title="CUDA_VISIBLE_DEVICES={value!r} hides all GPUs of this machine",
    severity=Severity.WARNING,
    fix=(unset("CUDA_VISIBLE_DEVICES"), export("CUDA_VISIBLE_DEVICES", "{uuid}", "chooses one", role=Role.ALTERNATIVE)),
    url=PROGRAMMING_GUIDE,
    unless={
        "ray_gave_no_gpu": "Ray set the mask: the task has to ask for a GPU",
        "slurm_gave_no_gpu": "Slurm set the mask: the job has to ask for a GPU",
        "another_makers_gpu_counted": "the number was taken from a list that counts other makers' GPUs",
    },
    finding="host.environment.all_hidden",
)


_MOST = 4
"""The most UUIDs that are shown."""


def find(facts: Facts, rank: LocalRank | None, launcher: Launcher | None) -> Matches:
    value = facts.variables.get(MASK)
    devices = facts.nvml_devices
    if value is None or not devices:
        return
    mask = apply_mask(value, devices)
    if mask.devices:
        return
    meant = value.strip("\"' ")
    is_quoted = meant != value and bool(apply_mask(meant, devices).devices)
    twice = [f"{mask.twice} names a GPU twice: CUDA then shows none"] if mask.twice else []
    units = [uuid for device in devices for uuid in device.mig_uuids or (device.uuid,)]
    own_rank = (
        [f"{rank.variable} is {value}, too: the mask is the number of this process"]
        if rank and value == str(rank.number)
        else []
    )
    shown = export(MASK, meant, "removes the quotes") if is_quoted else CAUSE.fix[0]
    yield Match(
        evidence=(
            f"{MASK}={value!r}",
            *twice,
            *own_rank,
            f"NVML reports {counted(len(devices), 'GPU')}; {_valid(value, units, len(devices))}",
        ),
        figures={"value": value, "uuid": units[0]},
        fix=(
            shown,
            CAUSE.fix[1],
            _without_rank(launcher, len(devices)) if own_rank else None,
        ),
        tried=shown,
    )


def _valid(value: str, units: list[str], gpus: int) -> str:
    """Return values that name the GPUs of this machine, in the notation of the mask."""
    if re.match(r"\W*(?:GPU|MIG)-", value):
        return f"{counted(len(units), 'valid UUID')}: {', '.join(units[:_MOST])}{', ...' if len(units) > _MOST else ''}"
    return f"valid indices: {f'0 to {gpus - 1}' if gpus > 1 else '0'}"


def _without_rank(launcher: Launcher | None, gpus: int) -> Action:
    """Return advice in place of a mask that is the number of the process."""
    if launcher is not None and launcher.processes > gpus > 1:
        return note(f"{launcher.name} started {launcher.processes} processes for {gpus} GPUs: start {gpus} processes")
    if gpus > 1:
        return note(f"the rank, if a program sets {MASK} to it, must be taken modulo {gpus}, the number of GPUs")
    return note(f"do not set {MASK} to the rank: each process was given its own GPU, and that is number 0 for it")
