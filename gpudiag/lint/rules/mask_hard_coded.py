"""the program replaces the CUDA_VISIBLE_DEVICES that its launcher has given

Slurm, Kubernetes and other launchers give each process its GPUs by this variable. A value in the program takes it other
GPUs than its own, or none if the machine has fewer, and all processes of a machine get the same. Only a program that
shows that it is started by a launcher is reported.

Bad
    import os

    os.environ["CUDA_VISIBLE_DEVICES"] = "1"
    import tensorflow as tf

    rank = int(os.environ["SLURM_PROCID"])

Good
    import os

    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "1")
    import tensorflow as tf

    rank = int(os.environ["SLURM_PROCID"])
"""

from __future__ import annotations

import re

from gpudiag.fix import edit, edit_note
from gpudiag.lint.program import LintedProgram
from gpudiag.lint.rule import Matches, Rule, Violation
from gpudiag.lint.settings import MASK, entries, masks
from gpudiag.lint.values import Const
from gpudiag.model.report import Severity

_LAUNCHERS = ("SLURM_", "Slurm", "OMPI_", "PMI_RANK", "LOCAL_RANK", "WORLD_SIZE", "horovod", "mpi4py", "KUBERNETES_")
"""Signs of a program that a launcher starts as several processes."""
RULE = Rule(
    message="CUDA_VISIBLE_DEVICES={value!r} replaces the mask that the launcher of this program has given",
    severity=Severity.NOTE,
    fix=(
        edit("os.environ.setdefault('CUDA_VISIBLE_DEVICES', {value!r})", "keep the mask of the launcher"),
        edit_note("set it in the shell if no launcher starts the program"),
    ),
    words=(MASK,),
    also=_LAUNCHERS,
    url="https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-environment-variables",
    cause="mask_outside_the_allocation",
)


_KEEPS = re.compile(rf"environ\.get\(\s*['\"]{MASK}|environ\.copy\(|environ\.pop\(\s*['\"]{MASK}")
"""Code that reads the old mask or copies the environment, as a function does that puts the mask back."""


_LAUNCHED = re.compile("|".join(_LAUNCHERS))


def find(program: LintedProgram) -> Matches:
    if not program.mentions(_LAUNCHED):
        return
    for event in masks(program):
        if event.functions and _KEEPS.search(event.functions[-1].text):
            continue
        if (
            event.how in ("=", "update", "putenv")
            and isinstance(event.value, Const)
            and not event.value.assumed
            and entries(event.value)
        ):
            yield Violation(event, {"value": event.value.value})
